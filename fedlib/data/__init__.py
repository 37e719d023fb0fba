"""Data sets, partitions over clients, and the split inside a client."""

from fedlib.data.datasets import DATASETS, Dataset, available, load, root
from fedlib.data.partition import Partition, make_partition
from fedlib.data.split import split_client

__all__ = ["DATASETS", "Dataset", "Partition", "available", "load", "make_partition", "root", "split_client"]
