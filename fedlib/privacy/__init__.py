"""Privacy: noise that a client adds (`noise`), what it guarantees (`accounting`), and an attack that shows it (`inversion`)."""
