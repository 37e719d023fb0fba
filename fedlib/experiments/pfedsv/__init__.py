"""pFedSV (doi 10.1109/TMC.2024.3396218): a file for each table or figure; two files hold what they share."""

DATA = ("mnist", "fmnist", "cifar10", "cifar100")  # the paper's

SHOWN = ("table1_pathological", "fig11_inversion")  # on the front page: the headline's item, and the figure
IN_SHORT = """The attacks of Figure 11 were run on CIFAR-10; the paper states neither attack nor network. From one of
two untrained networks the cosine attack recovers all 48 images of three seeds. With DP-SGD's noise at σ = 1 none of
three attacks recovers any, and at a hundredth of it the cosine attack none. On digits, an attacker who knows σ or sees
several uploads recovers most images at a hundredth of it, and none at σ = 0.1 or 1. Two reported quantities do not
follow from what the paper states: the privacy budgets of Table 4, and the classifier's share of the parameters (Figures
8 to 10). The experiment of Figure 2 was run on MNIST, with LeNet-5 in place of the paper's CNN. Client A ends 2.3
points [2.1, 2.4] lower if two clients that share no label with it are averaged, too. Whether it also needs more rounds
is inconclusive, and so is whether A gains from the two clients that do share its labels (0.0 points [-0.1, 0.1] over
local-only training). Figure 3's experiment was run on CIFAR-10, also with LeNet-5: after 20 rounds the two clients that
share a label with A are not those with the nearest models; after five rounds of FedAvg they are, in all three seeds.
The cosine between classifiers finds who shares a label, with an AUC 0.35 [0.29, 0.40] above that of the distance
between whole models after local-only training, and 0.23 [0.17, 0.29] after FedAvg. In Figure 7, on MNIST with LeNet-5,
pFedSV's relevance identifies who shares a label with an AUC of 1.00, FedFomo's with 0.81; one of thirty clients
discards a relevant one. Of Table 1's eight settings one was run, MNIST with 10 clients (LeNet-5; three seeds for six of
eleven methods): local-only training has 99.7 % (reported: 96.1), pFedSV 99.0 (98.0), and the difference is
inconclusive. The other tables of accuracies were run on digits only, with one seed."""
