"""pFedSim (arXiv:2305.15706): a file for each table or figure; task.py and alone.py hold what they share."""

DATA = ("cifar10", "cinic10", "emnist", "tiny_imagenet", "domainnet")  # the paper's
