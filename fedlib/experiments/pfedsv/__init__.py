"""pFedSV (doi 10.1109/TMC.2024.3396218): a file for each table or figure; three files hold what they share."""

DATA = ("mnist", "fmnist", "cifar10", "cifar100")  # the paper's
