"""Head to head: the four papers' methods and simple ones on the four papers' tasks, under equal conditions."""
