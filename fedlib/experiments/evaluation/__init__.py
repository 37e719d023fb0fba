"""Evaluation: when a personalised model is tested, and with whose batch-norm statistics."""
