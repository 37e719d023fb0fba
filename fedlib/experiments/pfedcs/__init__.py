"""PFedCS (AAAI 2025): a file for each table; task.py holds what they share. Declared, not run yet."""

DATA = ("cifar10", "cifar100", "tiny_imagenet")  # the paper's
