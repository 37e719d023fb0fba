"""Wrong solutions of lab 6 that must lose their exercise's points, as what `test_labs.changed` takes."""

WRONG = {
    "sample_gradients": [
        ("divided by the number of images, as in a mean", "return", "delta = delta / len(y)\nreturn"),
        ("softmax over the images instead of the classes", "(x @ W.T + b)", "((x @ W.T + b).T).T"),
        ("the biases are left out of the scores", "W.T + b", "W.T"),
        ("axes of classes and pixels swapped", "delta[:, :, None] * x", "x[:, :, None] * delta"),
    ],
    "recover_image": [
        ("always row 0", "return gW[0] / gb[0]"),
        ("the largest gb, not the largest absolute value", "np.abs(gb).argmax()", "np.argmax(gb)"),
        ("divided by the absolute value, so that the sign is lost", "/ gb[k]", "/ np.abs(gb[k])"),
    ],
    "recover_batch": [
        ("the classes with a positive gradient", "np.flatnonzero(gb < 0)", "np.flatnonzero(gb > 0)"),
        ("divided by the absolute value, so that pictures are negatives", "/ gb[k]", "/ abs(gb[k])"),
        (
            "all labels from the picture of the most negative class",
            """
best = np.argmin(gb)
return {int(k): gW[best] / gb[best] for k in np.flatnonzero(gb < 0)}
""",
        ),
        (
            "the division is done in place",
            """
gW /= gb[:, None]
return {int(k): gW[k] for k in np.flatnonzero(gb < 0)}
""",
        ),
    ],
    "psnr": [
        ("the guess is not clamped", "np.clip(guess, 0, 1)", "guess"),
        (
            "a mean over the first axis only",
            "np.mean((image - np.clip(guess, 0, 1)) ** 2)",
            "((image - np.clip(guess, 0, 1)) ** 2).sum() / len(image)",
        ),
        ("the guess is clamped in place", "np.clip(guess, 0, 1)", "np.clip(guess, 0, 1, out=guess)"),
    ],
    "clip_samples": [
        (
            "short gradients are made longer",
            "np.minimum(1, bound / np.maximum(np.sqrt(squares), 1e-300))",
            "bound / np.maximum(np.sqrt(squares), 1e-300)",
        ),
        ("entries clamped instead of the norm bounded", "return [np.clip(g, -bound, bound) for g in grads]"),
        ("clipped to 1, whatever the bound is", "bound / np", "1 / np"),
        (
            "factor is the bound over the norm where the norm is above 1",
            "np.minimum(1, bound / np.maximum(np.sqrt(squares), 1e-300))",
            "bound / np.maximum(np.sqrt(squares), 1)",
        ),
        (
            "in place",
            "return [g * factors.reshape(-1, *[1] * (g.ndim - 1)) for g in grads]",
            """
for g in grads:
    g *= factors.reshape(-1, *[1] * (g.ndim - 1))
return grads
""",
        ),
    ],
    "private_gradient": [
        ("sigma not multiplied by the bound", "sigma * bound", "sigma"),
        (
            "the noise is added after the division",
            "(total + sigma * bound * rng.standard_normal(total.shape)) / B",
            "total / B + sigma * bound * rng.standard_normal(total.shape)",
        ),
        (
            "noise on every image instead of once on the sum",
            "g.sum(axis=0)",
            "(g + sigma * bound * rng.standard_normal(g.shape)).sum(axis=0)",
            "(total + sigma * bound * rng.standard_normal(total.shape)) / B",
            "total / B",
        ),
        ("no clipping", "clip_samples(grads, bound)", "grads"),
        ("one random number for a whole parameter", "rng.standard_normal(total.shape)", "rng.standard_normal()"),
        ("a generator of its own: always the same noise", "B = len", "rng = np.random.default_rng(0)\nB = len"),
        ("uniform noise", "rng.standard_normal(total.shape)", "(2 * rng.random(total.shape) - 1)"),
        ("sigma taken for the variance", "sigma * bound", "np.sqrt(sigma) * bound"),
    ],
    "epsilon": [
        ("the base-10 logarithm", "np.log", "np.log10"),
        (
            "no step without noise counts as infinite",
            "if steps == 0:",
            """
if sigma == 0:
    return inf
if steps == 0:
""",
        ),
        ("delta fixed at 1e-5", "1 / delta", "1e5"),
    ],
}
