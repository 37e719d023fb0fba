"""Wrong solutions of lab 5 that must lose their exercise's points, as what `test_labs.changed` takes."""

WRONG = {
    "credits_of_order": [
        (
            "credits by place in the order instead of by player",
            """
worths = [v(order[:k]) for k in range(len(order) + 1)]
return np.diff(worths)
""",
        ),
        (
            "compared with the worth of the last arrival alone",
            """
credits, last = np.zeros(len(order)), set()
for j in order:
    credits[j] = v(last | {j}) - v(last)
    last = {j}
return credits
""",
        ),
        ("the worth of nobody taken to be 0", "before = v(there)", "before = v(there) if there else 0"),
    ],
    "shapley_exact": [
        ("the empty coalition left out of the sum", "size in range(p)", "size in range(1, p)"),
        (
            "all coalitions weigh the same, 1/2^(p-1)",
            "factorial(size) * factorial(p - size - 1) / factorial(p)",
            "1 / 2 ** (p - 1)",
        ),
        (
            "sizes up to p - 2 only: the largest coalition of others is missing",
            "size in range(p)",
            "size in range(p - 1)",
        ),
        (
            "weights of three players for any number of them",
            "factorial(size) * factorial(p - size - 1) / factorial(p)",
            "1 / p if size in (0, p - 1) else 1 / (p * (p - 1))",
        ),
        ("the worth of nobody taken to be 0", "({*X, j}) - v(X)", "({*X, j}) - (v(X) if X else 0)"),
        ("factorials of the size with j instead of without", "factorial(size)", "factorial(size + 1)"),
    ],
    "shapley_estimate": [
        ("standard deviation with division by m", ", ddof=1", ""),
        ("standard deviation of one credit, not divided by the root of m", " / sqrt(m)", ""),
        (
            "a generator of its own, always with the same luck",
            "credits = np",
            "rng = np.random.default_rng(0)\ncredits = np",
        ),
        ("players drawn with replacement", "rng.permutation(p)", "rng.integers(0, p, p)"),
        (
            "only cyclic shifts: not all orders are drawn",
            "rng.permutation(p)",
            "np.roll(np.arange(p), rng.integers(p))",
        ),
        (
            "mean and spread over players instead of over orders",
            "(axis=0), credits.std(axis=0, ddof=1) / sqrt(m)",
            "(axis=1), credits.std(axis=1, ddof=1) / sqrt(p)",
        ),
    ],
    "worth_of_models": [
        (
            "mean of the accuracies instead of accuracy of the mean",
            """
if len(X) == 0:
    return 0.0
return float(np.mean([np.mean(predict(models[j], x) == y) for j in X]))
""",
        ),
        ("divided by the number of all models instead of those in X", ".mean(axis=0)", ".sum(axis=0) / len(models)"),
        (
            "a model of zeros for the empty coalition",
            """
theta = sum((models[j] for j in X), np.zeros(models.shape[1])) / max(len(X), 1)
return float(np.mean(predict(theta, x) == y))
""",
        ),
        (
            "the sum is added up inside the first model",
            "theta = models[sorted(X)].mean(axis=0)",
            """
first, *rest = sorted(X)
theta = models[first]
for j in rest:
    theta += models[j]
theta /= len(X)
""",
        ),
        ("number of right answers instead of their share", "np.mean(predict", "np.sum(predict"),
    ],
    "mixing_weights": [
        ("absolute values instead of positive parts", "np.maximum(psi, 0)", "np.abs(psi)"),
        (
            "own distance 0, only kept from dividing by zero",
            """
d = np.linalg.norm(models - models[0], axis=1)
g = np.maximum(psi, 0) / np.maximum(d, 1e-5)
return g / g.sum() if g.sum() > 0 else np.eye(len(psi))[0]
""",
        ),
        ("squared distances", "np.linalg.norm(models - models[0], axis=1)", "((models - models[0]) ** 2).sum(axis=1)"),
        ("times the distance, so that far models count more", "(psi, 0) /", "(psi, 0) *"),
        ("no positive value: all models count the same", "else own_only", "else np.full(len(psi), 1 / len(psi))"),
        ("own distance is the mean of the others", "[1:].min", "[1:].mean"),
    ],
    "update_relevance": [
        (
            "the relevance of those who did not play decays as well",
            "relevance.copy()",
            "alpha * relevance",
            "= alpha * relevance[j] +",
            "+=",
        ),
        ("changed in place", "relevance, seen = relevance.copy(), seen.copy()\n", ""),
        (
            "alpha is the share of the new value",
            "alpha * relevance[j] + (1 - alpha)",
            "(1 - alpha) * relevance[j] + alpha",
        ),
        ("forgets who was seen before", "seen.copy()", "np.zeros(len(seen), bool)"),
    ],
    "whom_to_ask": [
        ("the client may ask itself", " j != me and", ""),
        ("equals by their number instead of at random", "int(j) for j in rng.permutation", "j for j in range"),
        ("nobody is discarded", " and not (seen[j] and relevance[j] <= 0)", ""),
        ("those not yet seen are discarded too", "not (seen[j] and relevance[j] <= 0)", "relevance[j] > 0"),
        (
            "one that was seen and has relevance 0 is not discarded",
            "not (seen[j] and relevance[j] <= 0)",
            "relevance[j] >= 0",
        ),
        ("k drawn at random from those who are not discarded", "sorted(left, key=lambda j: -relevance[j])", "left"),
    ],
}
