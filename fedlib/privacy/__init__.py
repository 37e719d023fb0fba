"""Privacy: noise that a client adds (`noise`), what it guarantees (`accounting`), an attack that shows it
(`inversion`), and how alike pictures look (`perceptual`)."""
