"""What is known of data sets without having them: shapes, and the sizes of classes,
which are all that a partition by labels needs."""

from __future__ import annotations

import numpy as np

from fedlib.base.errors import BadValue, choose
from fedlib.data.datasets import available, is_own, load
from fedlib.data.looks import LOOKS
from fedlib.data.sources import DATASETS, DOMAINS, PACS

BALANCED = ("fmnist", "cifar10", "cifar100", "cinic10", "tiny_imagenet")  # equally many images of every class
# Counted in the public label files, training and test part together: 5,923 + 980 zeros, ..., 5,949 + 1,009 nines.
MNIST = (6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958)


def class_sizes(dataset: str) -> list[int] | None:
    """Images of every class, both official parts together; None if they are unequal and the data set is not prepared
    here."""
    if dataset in BALANCED:
        about = DATASETS[dataset]
        return [about.images // about.classes] * about.classes
    if dataset == "mnist":
        return list(MNIST)
    if dataset == "pacs":
        return [sum(images) for images in zip(*PACS.values())]
    here = dataset in available() or is_own(dataset)
    return np.bincount(load(dataset).labels.numpy()).tolist() if here else None


def known_class_sizes(dataset: str) -> list[int]:
    """Images of every class. Raises BadValue for an unknown data set,
    and for one whose classes can only be counted when it is prepared."""
    choose("dataset", dataset, [*dict.fromkeys([*DATASETS, *available()]), *[dataset] * is_own(dataset)])
    sizes = class_sizes(dataset)
    if sizes is None:
        raise BadValue(
            f"the classes of {dataset!r} are unequally large and it is not here; run `fedlib data {dataset}`"
        )
    return sizes


def shape_and_classes(dataset: str) -> tuple[tuple[int, int, int], int]:
    """Shape (channels, height, width) of the images and number of classes.
    A data set of the user's own is loaded for that."""
    if dataset in DATASETS:
        return DATASETS[dataset].shape, DATASETS[dataset].classes
    own = load(dataset)
    return own.shape, len(own.classes)


def group_names(dataset: str) -> tuple[str, ...]:
    """Names of a data set's natural groups (domains, writers, looks).
    Others than DomainNet's, PACS's and the digits' looks are loaded for that."""
    known = {"domainnet": tuple(DOMAINS), "pacs": tuple(PACS), "digits_looks": tuple(LOOKS)}
    return known[dataset] if dataset in known else load(dataset).group_names
