"""Evaluation: when a personalised model is tested, and with which batch-norm statistics."""

IN_SHORT = """At pFedSim's settings (CIFAR-10, its authors' partition, 100 clients, 200 rounds, each client's own
batch-norm statistics; eleven methods, three seeds) FedAvg ranks ninth of ten before local training (Local is not tested
then), and has the highest mean after it. At Dir(0.1) it gains 63.7 points [58.0, 69.5] and is then 1.8 [0.9, 2.7] above
FedRep, at Dir(0.5) 2.2 [1.3, 3.1] above FedSimSup, which had the highest means before. 11 and 16 of 45 pairs of methods
reverse their order significantly (not corrected for the number of pairs). In all of these one is FedAvg, FedBN or
FedBABU, with one classifier for all clients; the other one has a classifier or an aggregate for each client. Statistics
averaged over the participants, with which four methods were also run, raise all but FedBN before local training: FedAvg
by 12.6 points [9.2, 15.9] at Dir(0.1) and 5.5 [3.0, 8.0] at Dir(0.5), FedPer by 2.1 [1.8, 2.4] and 3.1 [1.6, 4.5]
(PFLlib tests both with each client's own, FL-bench by default with averaged ones), pFedSim by 2.4 [0.8, 3.9] and 4.4
[3.0, 5.7]. At Dir(0.5) pFedSim, so tested, is before local training 3.3 points [2.7, 4.0] above FedAvg after it, at
Dir(0.1) 0.7 [0.4, 0.9]."""
TERMS = "Authors' input pipeline: 0-255 pixels, standardised as if 0-1, not shuffled; ours: 0-1, shuffled."
