"""fedlib: personalised federated learning, replicated. See README.md."""

__version__ = "0.1.0"
