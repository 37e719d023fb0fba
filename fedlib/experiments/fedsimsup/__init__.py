"""FedSimSup (submitted to ICLR 2025): a file for each table or figure."""

DATA = ("cifar10", "cifar100", "femnist")  # the paper's
