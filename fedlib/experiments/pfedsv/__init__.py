"""pFedSV (doi 10.1109/TMC.2024.3396218): a file for each table or figure; two files hold what they share."""

DATA = ("mnist", "fmnist", "cifar10", "cifar100")  # the paper's

SHOWN = ("table1_pathological", "fig11_inversion")  # on the front page: the headline's item, and the figure
TERMS = """Few clients: 10, all in every round; many: 100, a tenth (digits: 6 of 20). D: a client downloads only k
models, by Shapley values; D+C: only their classifiers, one extractor (C). Relevance: running mean of the Shapley values
of another's model (FedFomo: losses); a relevant client shares a label; pairs are directed. Self-distance: from a
client's own model in Eq. 6. v(X): validation accuracy of the mean of models X. Figure 11: DLG's LeNet, unless named."""
IN_SHORT = """The attacks of Figure 11 were run on CIFAR-10; the paper states neither attack nor network. From one of
two untrained networks the attack by gradient cosine (Geiping et al.) recovers all 48 images of three seeds. With
DP-SGD's noise at σ = 1 none of three attacks recovers any, nor the cosine attack at a hundredth of it. On digits
(padded CNN), at a hundredth of it the attack recovers 42 %, and attackers who know σ or see several uploads 75 to 100
%. At σ = 0.1 or 1 none does. The privacy budgets of Table 4 and the classifier's share of the parameters (Figures 8 to
10) do not follow from what the paper states. In Figure 2 (MNIST, LeNet-5 for the paper's CNN) client A ends 2.3 points
[2.1, 2.4] lower if two clients that share no label with it are averaged, too. Whether it needs more rounds, and whether
A gains from the two that share its labels, is inconclusive. In Figure 3 (CIFAR-10, LeNet-5), after 20 rounds the two
clients that share a label with A are those with the nearest models in none of three seeds, after five rounds of FedAvg
in all three. The cosine between classifiers finds who shares a label, with an AUC 0.35 [0.26, 0.43] above that of the
distance between full models after local-only training, and 0.23 [0.11, 0.34] after FedAvg. In Figure 4 (CIFAR-10,
LeNet-5), where clients know who shares their labels, Shapley weights are 3.8 points [3.5, 4.2] behind the pairwise rule
*gain* (what another model adds to the client's own), and on average over the rounds 4.6 [3.9, 5.2] behind local-only
training. In Figure 7 (MNIST, LeNet-5) pFedSV's relevance (the Shapley value of another client's model) identifies who
shares a label with an AUC of 1.00, FedFomo's with 0.81. Of the eight settings of each of Tables 1 and 2 two were run,
MNIST and CIFAR-10 with 10 clients. With two classes each (Table 1) pFedSV is behind local-only training on CIFAR-10, by
3.4 points [1.9, 4.9] (reported: 5.5 ahead), after local training, too, by 0.9 [0.5, 1.3]; on MNIST the difference is
inconclusive. With fewer images of MNIST it is further behind; no number tried brings all near what is reported. With
Dirichlet skew (Table 2), where clients are tested on equally many images of every class that they own, FedAvg, reported
as lowest, has the highest mean on MNIST, and pFedSV on neither (CIFAR-10: 43.1 %, reported: 61.18 %). In Tables 3 and 4
(CIFAR-10, LeNet-5, 10 clients) record-level DP with σ = 1 lowers pFedSV, by 7.7 points [5.6, 9.7], more than twice the
reported loss, and by 6.6 [2.6, 10.5] (reported: 2.6), to 10.0 [5.3, 14.7] below local-only training."""
