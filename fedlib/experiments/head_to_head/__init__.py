"""Head to head: the four papers' methods and simple ones on the four papers' tasks, under equal conditions."""

TERMS = "pFedSV (D+C): clients exchange classifiers only, with one extractor for all."
