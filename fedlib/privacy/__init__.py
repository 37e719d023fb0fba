"""Privacy: noise that a client adds (`noise`), and what it guarantees (`accounting`)."""
