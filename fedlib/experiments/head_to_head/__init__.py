"""Head to head: the four papers' methods and simple ones on the four papers' tasks, under equal conditions."""

TERMS = """Tasks: pFedSim's is Dir(0.1), FedSimSup's and pFedSV's two classes per client, PFedCS's groups of the same
classes. pFedSV (D+C): of others a client downloads only classifiers, and one extractor averaged as in FedAvg."""
