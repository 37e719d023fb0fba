"""PFedCS (AAAI 2025): a file for each table or figure; task.py holds what they share."""

DATA = ("cifar10", "cifar100", "tiny_imagenet")  # the paper's
