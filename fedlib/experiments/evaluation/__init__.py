"""Evaluation: when a personalised model is tested, and with which batch-norm statistics."""
