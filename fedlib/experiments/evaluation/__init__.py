"""Evaluation: when a personalised model is tested, and with which batch-norm statistics."""

IN_SHORT = """At pFedSim's settings (CIFAR-10, its authors' partition, 100 clients, 200 rounds, each client's own
batch-norm statistics; 27 methods, three seeds) FedAvg ranks 22nd of 24 before local training at Dir(0.1) and gains 63.7
points [57.6, 69.8] by it; the three highest means after it are those of methods with a single global model, FedGen,
FedDyn and FedAvg (not significantly). At Dir(0.5) FedAvg ranks 18th of 24 before and 8th of 26 after. FedRep and
FedPAC, which have the highest means before, are then 1.9 [1.1, 2.7] below FedGen at Dir(0.1) and 1.6 [0.7, 2.6] below
pFedHN at Dir(0.5). 68 and 89 of 253 pairs of methods reverse their order significantly (not corrected for the number of
pairs). In 55 and 76 of these one has one classifier for all clients or a cluster's, the other one a classifier or an
aggregate for each client. Statistics averaged over the participants, with which seven of these were also run, raise
three of them before local training (FedBN, FedFomo and f-FedAP stay, FedRep falls at Dir(0.1)): FedAvg by 12.6 points
[11.3, 13.9] at Dir(0.1) and 5.5 [4.1, 6.9] at Dir(0.5), FedPer by 2.1 [1.7, 2.5] and 3.1 [2.1, 4.1] (PFLlib tests both
with each client's own, FL-bench by default with averaged ones), pFedSim by 2.4 [1.6, 3.1] and 4.4 [3.7, 5.0]. At
Dir(0.5) pFedSim, so tested, is before local training 3.3 points [2.7, 4.0] above FedAvg after it, at Dir(0.1) 0.7 [0.4,
0.9]."""
TERMS = "Authors' input pipeline: 0-255 pixels, standardised as if 0-1, not shuffled; ours: 0-1, shuffled."
