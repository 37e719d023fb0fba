"""Evaluation: when a personalised model is tested, and with which batch-norm statistics."""

IN_SHORT = """At pFedSim's settings (CIFAR-10, its authors' partition, 100 clients, 200 rounds; eleven methods, three
seeds) FedAvg ranks ninth of ten methods before local training, and has the highest mean after it. At Dir(0.1) it gains
63.7 points [57.3, 70.1] and is then 1.8 [0.9, 2.6] above FedRep, at Dir(0.5) 2.2 [1.3, 3.0] above FedSimSup, which had
the highest means before. 13 and 16 of 45 pairs of methods reverse their order significantly (not corrected for the
number of pairs). In all of these one is FedAvg, FedBN or FedBABU, with one classifier for all clients; the other one
has a classifier or an aggregate for each client. Before local training it also matters whose batch-norm statistics a
model has: averaged over clients (as in FL-bench by default) in place of each client's own (as in PFLlib) FedAvg is 12.6
points [10.9, 14.2] higher at Dir(0.1) and 5.5 [3.9, 7.1] at Dir(0.5), pFedSim 2.4 [1.4, 3.3] and 4.4 [3.4, 5.3]. After
local training this makes no difference of a point."""
