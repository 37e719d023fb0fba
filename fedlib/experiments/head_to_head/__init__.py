"""Head to head: the four papers' methods and simple ones on the four papers' tasks, under equal conditions."""

TERMS = "pFedSV (D+C): of others a client downloads only classifiers, and one extractor averaged as in FedAvg."
