"""Training and evaluation of many clients: `fold` over minibatches, backends, transport, and the round loop."""
