"""Data sets, partitions over clients, and the split inside a client."""

from fedlib.data.datasets import DATASETS, Dataset, available, load, root
from fedlib.data.describe import describe
from fedlib.data.partition import Partition, make_partition
from fedlib.data.split import split_client, split_clients

__all__ = [
    "DATASETS",
    "Dataset",
    "Partition",
    "available",
    "describe",
    "load",
    "make_partition",
    "root",
    "split_client",
    "split_clients",
]
