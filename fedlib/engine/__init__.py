"""Training and evaluation of many clients: set-up, rounds, backends, evaluation, transport, checkpoints, results."""
