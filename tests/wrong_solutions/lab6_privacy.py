"""Wrong solutions of lab 6 that must lose their exercise's points, as what `test_labs.changed` takes."""

WRONG = {
    "sample_gradients": [
        ("divided by the number of images, as in a mean", "return", "delta = delta / len(y)\nreturn"),
        (
            "the sign is wrong: one-hot label minus probability",
            """
delta = np.eye(len(b))[y] - softmax(x @ W.T + b)
return delta[:, :, None] * x[:, None, :], delta
""",
        ),
        ("softmax over the images instead of the classes", "(x @ W.T + b)", "((x @ W.T + b).T).T"),
        ("the biases are left out of the scores", "W.T + b", "W.T"),
        ("axes of classes and pixels swapped", "delta[:, :, None] * x", "x[:, :, None] * delta"),
        ("1 taken off the column of the label for all images", "np.arange(len(y))", ":"),
    ],
    "recover_image": [
        ("always row 0", "return gW[0] / gb[0]"),
        ("the largest gb, not the largest absolute value", "np.abs(gb).argmax()", "np.argmax(gb)"),
        ("divided by the absolute value, so that the sign is lost", "/ gb[k]", "/ np.abs(gb[k])"),
        ("the row with the most negative gb: right for the last layer only", "np.abs(gb).argmax()", "np.argmin(gb)"),
        (
            "scaled to the range from 0 to 1",
            """
k = np.abs(gb).argmax()
image = gW[k] / gb[k]
return (image - image.min()) / (image.max() - image.min())
""",
        ),
    ],
    "recover_batch": [
        ("the classes with a positive gradient", "np.flatnonzero(gb < 0)", "np.flatnonzero(gb > 0)"),
        ("all classes", "return {k: gW[k] / gb[k] for k in range(len(gb))}"),
        ("only the most negative class", "k = int(np.argmin(gb))\nreturn {k: gW[k] / gb[k]}"),
        ("divided by the absolute value, so that pictures are negatives", "/ gb[k]", "/ abs(gb[k])"),
        (
            "all labels from the picture of the most negative class",
            """
best = np.argmin(gb)
return {int(k): gW[best] / gb[best] for k in np.flatnonzero(gb < 0)}
""",
        ),
        ("clamped although it should come as it is", "gW[k] / gb[k]", "np.clip(gW[k] / gb[k], 0, 1)"),
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
        ("the natural logarithm", "np.log10", "np.log"),
        ("20 times the logarithm", "-10 * np", "-20 * np"),
        (
            "a mean over the first axis only",
            "np.mean((image - np.clip(guess, 0, 1)) ** 2)",
            "((image - np.clip(guess, 0, 1)) ** 2).sum() / len(image)",
        ),
        ("the guess is clamped in place", "np.clip(guess, 0, 1)", "np.clip(guess, 0, 1, out=guess)"),
    ],
    "clip_samples": [
        (
            "each parameter clipped on its own",
            """
out = []
for g in grads:
    norms = np.sqrt((g.reshape(len(g), -1) ** 2).sum(axis=1))
    factors = np.minimum(1, bound / np.maximum(norms, 1e-12))
    out.append(g * factors.reshape(-1, *[1] * (g.ndim - 1)))
return out
""",
        ),
        (
            "short gradients are made longer",
            "np.minimum(1, bound / np.maximum(np.sqrt(squares), 1e-300))",
            "bound / np.maximum(np.sqrt(squares), 1e-300)",
        ),
        (
            "one factor for the whole batch",
            "squares = sum((g.reshape(len(g), -1) ** 2).sum(axis=1) for g in grads)",
            "squares = np.full(len(grads[0]), sum((g**2).sum() for g in grads))",
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
        ("squared norm, the root is missing", "np.sqrt(squares)", "squares"),
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
        (
            "the mean is clipped instead of every image",
            "g.sum(axis=0) for g in clip_samples(grads, bound)",
            "B * g[0] for g in clip_samples([g.mean(axis=0)[None] for g in grads], bound)",
        ),
        ("one random number for a whole parameter", "rng.standard_normal(total.shape)", "rng.standard_normal()"),
        ("a generator of its own: always the same noise", "B = len", "rng = np.random.default_rng(0)\nB = len"),
        ("uniform noise", "rng.standard_normal(total.shape)", "(2 * rng.random(total.shape) - 1)"),
        ("sigma taken for the variance", "sigma * bound", "np.sqrt(sigma) * bound"),
    ],
    "epsilon": [
        ("the base-10 logarithm", "np.log", "np.log10"),
        ("sigma instead of its square", "sigma**2", "sigma"),
        ("the steps do not add up", "* steps ", ""),
        ("the best order of one step, then times the steps", "np.min(orders * steps", "steps * np.min(orders"),
        (
            "the best order of all, not one of those that are given",
            "np.min(orders * steps / (2 * sigma**2) + np.log(1 / delta) / (orders - 1))",
            "steps / (2 * sigma**2) + np.sqrt(2 * steps * np.log(1 / delta)) / sigma",
        ),
        ("divided by the order instead of the order minus 1", "(orders - 1)", "orders"),
        ("the largest instead of the smallest", "np.min", "np.max"),
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
