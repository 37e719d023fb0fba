"""Mistakes in lab 6, each of which must lose its exercise's points."""

WRONG = [
    (
        "sample_gradients",
        "divided by the number of images, as in a mean",
        """
def sample_gradients(W, b, x, y):
    delta = softmax(x @ W.T + b)
    delta[np.arange(len(y)), y] -= 1
    delta = delta / len(y)
    return delta[:, :, None] * x[:, None, :], delta
""",
    ),
    (
        "sample_gradients",
        "the sign is wrong: one-hot label minus probability",
        """
def sample_gradients(W, b, x, y):
    delta = np.eye(len(b))[y] - softmax(x @ W.T + b)
    return delta[:, :, None] * x[:, None, :], delta
""",
    ),
    (
        "sample_gradients",
        "softmax over the images instead of the classes",
        """
def sample_gradients(W, b, x, y):
    delta = softmax((x @ W.T + b).T).T
    delta[np.arange(len(y)), y] -= 1
    return delta[:, :, None] * x[:, None, :], delta
""",
    ),
    (
        "sample_gradients",
        "the biases are left out of the scores",
        """
def sample_gradients(W, b, x, y):
    delta = softmax(x @ W.T)
    delta[np.arange(len(y)), y] -= 1
    return delta[:, :, None] * x[:, None, :], delta
""",
    ),
    (
        "sample_gradients",
        "axes of classes and pixels swapped",
        """
def sample_gradients(W, b, x, y):
    delta = softmax(x @ W.T + b)
    delta[np.arange(len(y)), y] -= 1
    return x[:, :, None] * delta[:, None, :], delta
""",
    ),
    (
        "sample_gradients",
        "1 taken off the column of the label for all images",
        """
def sample_gradients(W, b, x, y):
    delta = softmax(x @ W.T + b)
    delta[:, y] -= 1
    return delta[:, :, None] * x[:, None, :], delta
""",
    ),
    (
        "recover_image",
        "always row 0",
        """
def recover_image(gW, gb):
    return gW[0] / gb[0]
""",
    ),
    (
        "recover_image",
        "the largest gb, not the largest absolute value",
        """
def recover_image(gW, gb):
    k = np.argmax(gb)
    return gW[k] / gb[k]
""",
    ),
    (
        "recover_image",
        "divided by the absolute value, so that the sign is lost",
        """
def recover_image(gW, gb):
    k = np.abs(gb).argmax()
    return gW[k] / np.abs(gb[k])
""",
    ),
    (
        "recover_image",
        "the row with the most negative gb: right for the last layer only",
        """
def recover_image(gW, gb):
    k = np.argmin(gb)
    return gW[k] / gb[k]
""",
    ),
    (
        "recover_image",
        "scaled to the range from 0 to 1",
        """
def recover_image(gW, gb):
    k = np.abs(gb).argmax()
    image = gW[k] / gb[k]
    return (image - image.min()) / (image.max() - image.min())
""",
    ),
    (
        "recover_batch",
        "the classes with a positive gradient",
        """
def recover_batch(gW, gb):
    return {int(k): gW[k] / gb[k] for k in np.flatnonzero(gb > 0)}
""",
    ),
    (
        "recover_batch",
        "all classes",
        """
def recover_batch(gW, gb):
    return {k: gW[k] / gb[k] for k in range(len(gb))}
""",
    ),
    (
        "recover_batch",
        "only the most negative class",
        """
def recover_batch(gW, gb):
    k = int(np.argmin(gb))
    return {k: gW[k] / gb[k]}
""",
    ),
    (
        "recover_batch",
        "divided by the absolute value, so that pictures are negatives",
        """
def recover_batch(gW, gb):
    return {int(k): gW[k] / abs(gb[k]) for k in np.flatnonzero(gb < 0)}
""",
    ),
    (
        "recover_batch",
        "all labels from the picture of the most negative class",
        """
def recover_batch(gW, gb):
    best = np.argmin(gb)
    return {int(k): gW[best] / gb[best] for k in np.flatnonzero(gb < 0)}
""",
    ),
    (
        "recover_batch",
        "clamped although it should come as it is",
        """
def recover_batch(gW, gb):
    return {int(k): np.clip(gW[k] / gb[k], 0, 1) for k in np.flatnonzero(gb < 0)}
""",
    ),
    (
        "recover_batch",
        "the division is done in place",
        """
def recover_batch(gW, gb):
    gW /= gb[:, None]
    return {int(k): gW[k] for k in np.flatnonzero(gb < 0)}
""",
    ),
    (
        "psnr",
        "the guess is not clamped",
        """
def psnr(image, guess):
    mse = np.mean((image - guess) ** 2)
    return inf if mse == 0 else float(-10 * np.log10(mse))
""",
    ),
    (
        "psnr",
        "the natural logarithm",
        """
def psnr(image, guess):
    mse = np.mean((image - np.clip(guess, 0, 1)) ** 2)
    return inf if mse == 0 else float(-10 * np.log(mse))
""",
    ),
    (
        "psnr",
        "20 times the logarithm",
        """
def psnr(image, guess):
    mse = np.mean((image - np.clip(guess, 0, 1)) ** 2)
    return inf if mse == 0 else float(-20 * np.log10(mse))
""",
    ),
    (
        "psnr",
        "a mean over the first axis only",
        """
def psnr(image, guess):
    mse = ((image - np.clip(guess, 0, 1)) ** 2).sum() / len(image)
    return inf if mse == 0 else float(-10 * np.log10(mse))
""",
    ),
    (
        "psnr",
        "the guess is clamped in place",
        """
def psnr(image, guess):
    guess[guess < 0] = 0
    guess[guess > 1] = 1
    mse = np.mean((image - guess) ** 2)
    return inf if mse == 0 else float(-10 * np.log10(mse))
""",
    ),
    (
        "clip_samples",
        "each parameter clipped on its own",
        """
def clip_samples(grads, bound):
    out = []
    for g in grads:
        norms = np.sqrt((g.reshape(len(g), -1) ** 2).sum(axis=1))
        factors = np.minimum(1, bound / np.maximum(norms, 1e-12))
        out.append(g * factors.reshape(-1, *[1] * (g.ndim - 1)))
    return out
""",
    ),
    (
        "clip_samples",
        "short gradients are made longer",
        """
def clip_samples(grads, bound):
    norms = np.sqrt(sum((g.reshape(len(g), -1) ** 2).sum(axis=1) for g in grads))
    factors = bound / np.maximum(norms, 1e-12)
    return [g * factors.reshape(-1, *[1] * (g.ndim - 1)) for g in grads]
""",
    ),
    (
        "clip_samples",
        "one factor for the whole batch",
        """
def clip_samples(grads, bound):
    norm = np.sqrt(sum((g**2).sum() for g in grads))
    return [g * min(1, bound / max(norm, 1e-12)) for g in grads]
""",
    ),
    (
        "clip_samples",
        "entries clamped instead of the norm bounded",
        """
def clip_samples(grads, bound):
    return [np.clip(g, -bound, bound) for g in grads]
""",
    ),
    (
        "clip_samples",
        "clipped to 1, whatever the bound is",
        """
def clip_samples(grads, bound):
    norms = np.sqrt(sum((g.reshape(len(g), -1) ** 2).sum(axis=1) for g in grads))
    factors = np.minimum(1, 1 / np.maximum(norms, 1e-12))
    return [g * factors.reshape(-1, *[1] * (g.ndim - 1)) for g in grads]
""",
    ),
    (
        "clip_samples",
        "factor is the bound over the norm where the norm is above 1",
        """
def clip_samples(grads, bound):
    norms = np.sqrt(sum((g.reshape(len(g), -1) ** 2).sum(axis=1) for g in grads))
    factors = bound / np.maximum(norms, 1)
    return [g * factors.reshape(-1, *[1] * (g.ndim - 1)) for g in grads]
""",
    ),
    (
        "clip_samples",
        "in place",
        """
def clip_samples(grads, bound):
    norms = np.sqrt(sum((g.reshape(len(g), -1) ** 2).sum(axis=1) for g in grads))
    factors = np.minimum(1, bound / np.maximum(norms, 1e-12))
    for g in grads:
        g *= factors.reshape(-1, *[1] * (g.ndim - 1))
    return grads
""",
    ),
    (
        "clip_samples",
        "squared norm, the root is missing",
        """
def clip_samples(grads, bound):
    squares = sum((g.reshape(len(g), -1) ** 2).sum(axis=1) for g in grads)
    factors = np.minimum(1, bound / np.maximum(squares, 1e-12))
    return [g * factors.reshape(-1, *[1] * (g.ndim - 1)) for g in grads]
""",
    ),
    (
        "private_gradient",
        "sigma not multiplied by the bound",
        """
def private_gradient(grads, bound, sigma, rng):
    sums = [g.sum(axis=0) for g in clip_samples(grads, bound)]
    return [(total + sigma * rng.standard_normal(total.shape)) / len(grads[0]) for total in sums]
""",
    ),
    (
        "private_gradient",
        "the noise is added after the division",
        """
def private_gradient(grads, bound, sigma, rng):
    means = [g.mean(axis=0) for g in clip_samples(grads, bound)]
    return [mean + sigma * bound * rng.standard_normal(mean.shape) for mean in means]
""",
    ),
    (
        "private_gradient",
        "noise on every image instead of once on the sum",
        """
def private_gradient(grads, bound, sigma, rng):
    clipped = clip_samples(grads, bound)
    return [(g + sigma * bound * rng.standard_normal(g.shape)).mean(axis=0) for g in clipped]
""",
    ),
    (
        "private_gradient",
        "no clipping",
        """
def private_gradient(grads, bound, sigma, rng):
    sums = [g.sum(axis=0) for g in grads]
    return [(total + sigma * bound * rng.standard_normal(total.shape)) / len(grads[0]) for total in sums]
""",
    ),
    (
        "private_gradient",
        "the mean is clipped instead of every image",
        """
def private_gradient(grads, bound, sigma, rng):
    B = len(grads[0])
    means = [g[0] for g in clip_samples([g.mean(axis=0)[None] for g in grads], bound)]
    return [mean + sigma * bound * rng.standard_normal(mean.shape) / B for mean in means]
""",
    ),
    (
        "private_gradient",
        "one random number for a whole parameter",
        """
def private_gradient(grads, bound, sigma, rng):
    sums = [g.sum(axis=0) for g in clip_samples(grads, bound)]
    return [(total + sigma * bound * rng.standard_normal()) / len(grads[0]) for total in sums]
""",
    ),
    (
        "private_gradient",
        "a generator of its own: always the same noise",
        """
def private_gradient(grads, bound, sigma, rng):
    rng = np.random.default_rng(0)
    sums = [g.sum(axis=0) for g in clip_samples(grads, bound)]
    return [(total + sigma * bound * rng.standard_normal(total.shape)) / len(grads[0]) for total in sums]
""",
    ),
    (
        "private_gradient",
        "uniform noise",
        """
def private_gradient(grads, bound, sigma, rng):
    sums = [g.sum(axis=0) for g in clip_samples(grads, bound)]
    return [(total + sigma * bound * (2 * rng.random(total.shape) - 1)) / len(grads[0]) for total in sums]
""",
    ),
    (
        "private_gradient",
        "sigma taken for the variance",
        """
def private_gradient(grads, bound, sigma, rng):
    sums = [g.sum(axis=0) for g in clip_samples(grads, bound)]
    scale = np.sqrt(sigma) * bound
    return [(total + scale * rng.standard_normal(total.shape)) / len(grads[0]) for total in sums]
""",
    ),
    (
        "epsilon",
        "the decimal logarithm",
        """
def epsilon(sigma, steps, delta, orders):
    if steps == 0:
        return 0.0
    if sigma == 0:
        return inf
    return float(np.min(orders * steps / (2 * sigma**2) + np.log10(1 / delta) / (orders - 1)))
""",
    ),
    (
        "epsilon",
        "sigma instead of its square",
        """
def epsilon(sigma, steps, delta, orders):
    if steps == 0:
        return 0.0
    if sigma == 0:
        return inf
    return float(np.min(orders * steps / (2 * sigma) + np.log(1 / delta) / (orders - 1)))
""",
    ),
    (
        "epsilon",
        "the steps do not add up",
        """
def epsilon(sigma, steps, delta, orders):
    if steps == 0:
        return 0.0
    if sigma == 0:
        return inf
    return float(np.min(orders / (2 * sigma**2) + np.log(1 / delta) / (orders - 1)))
""",
    ),
    (
        "epsilon",
        "the best order of one step, then times the steps",
        """
def epsilon(sigma, steps, delta, orders):
    if steps == 0:
        return 0.0
    if sigma == 0:
        return inf
    return float(steps * np.min(orders / (2 * sigma**2) + np.log(1 / delta) / (orders - 1)))
""",
    ),
    (
        "epsilon",
        "the best order of all, not one of those that are given",
        """
def epsilon(sigma, steps, delta, orders):
    if steps == 0:
        return 0.0
    if sigma == 0:
        return inf
    return float(steps / (2 * sigma**2) + np.sqrt(2 * steps * np.log(1 / delta)) / sigma)
""",
    ),
    (
        "epsilon",
        "divided by the order instead of the order minus 1",
        """
def epsilon(sigma, steps, delta, orders):
    if steps == 0:
        return 0.0
    if sigma == 0:
        return inf
    return float(np.min(orders * steps / (2 * sigma**2) + np.log(1 / delta) / orders))
""",
    ),
    (
        "epsilon",
        "the largest instead of the smallest",
        """
def epsilon(sigma, steps, delta, orders):
    if steps == 0:
        return 0.0
    if sigma == 0:
        return inf
    return float(np.max(orders * steps / (2 * sigma**2) + np.log(1 / delta) / (orders - 1)))
""",
    ),
    (
        "epsilon",
        "no step without noise counts as infinite",
        """
def epsilon(sigma, steps, delta, orders):
    if sigma == 0:
        return inf
    if steps == 0:
        return 0.0
    return float(np.min(orders * steps / (2 * sigma**2) + np.log(1 / delta) / (orders - 1)))
""",
    ),
    (
        "epsilon",
        "delta fixed at 1e-5",
        """
def epsilon(sigma, steps, delta, orders):
    if steps == 0:
        return 0.0
    if sigma == 0:
        return inf
    return float(np.min(orders * steps / (2 * sigma**2) + np.log(1e5) / (orders - 1)))
""",
    ),
]
