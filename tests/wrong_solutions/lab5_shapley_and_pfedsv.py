"""Mistakes in lab 5, each of which must lose its exercise's points."""

WRONG = [
    (
        "credits_of_order",
        "credits by place in the order instead of by player",
        """
def credits_of_order(v, order):
    worths = [v(order[:k]) for k in range(len(order) + 1)]
    return np.diff(worths)
""",
    ),
    (
        "credits_of_order",
        "compared with the worth of the last arrival alone",
        """
def credits_of_order(v, order):
    credits, last = np.zeros(len(order)), set()
    for j in order:
        credits[j] = v(last | {j}) - v(last)
        last = {j}
    return credits
""",
    ),
    (
        "credits_of_order",
        "the worth of nobody taken to be 0",
        """
def credits_of_order(v, order):
    credits, before, there = np.zeros(len(order)), 0.0, set()
    for j in order:
        there = there | {j}
        credits[j] = v(there) - before
        before = v(there)
    return credits
""",
    ),
    (
        "shapley_exact",
        "the empty coalition left out of the sum",
        """
def shapley_exact(v, p):
    psi = np.zeros(p)
    for j in range(p):
        others = [i for i in range(p) if i != j]
        for size in range(1, p):
            weight = factorial(size) * factorial(p - size - 1) / factorial(p)
            for X in combinations(others, size):
                psi[j] += weight * (v({*X, j}) - v(X))
    return psi
""",
    ),
    (
        "shapley_exact",
        "all coalitions weigh the same, 1/2^(p-1)",
        """
def shapley_exact(v, p):
    psi = np.zeros(p)
    for j in range(p):
        others = [i for i in range(p) if i != j]
        for size in range(p):
            for X in combinations(others, size):
                psi[j] += (v({*X, j}) - v(X)) / 2 ** (p - 1)
    return psi
""",
    ),
    (
        "shapley_exact",
        "sizes up to p - 2 only: the largest coalition of others is missing",
        """
def shapley_exact(v, p):
    psi = np.zeros(p)
    for j in range(p):
        others = [i for i in range(p) if i != j]
        for size in range(p - 1):
            weight = factorial(size) * factorial(p - size - 1) / factorial(p)
            for X in combinations(others, size):
                psi[j] += weight * (v({*X, j}) - v(X))
    return psi
""",
    ),
    (
        "shapley_exact",
        "weights of three players for any number of them",
        """
def shapley_exact(v, p):
    psi = np.zeros(p)
    for j in range(p):
        others = [i for i in range(p) if i != j]
        for size in range(p):
            weight = 1 / p if size in (0, p - 1) else 1 / (p * (p - 1))
            for X in combinations(others, size):
                psi[j] += weight * (v({*X, j}) - v(X))
    return psi
""",
    ),
    (
        "shapley_exact",
        "the worth of nobody taken to be 0",
        """
def shapley_exact(v, p):
    psi = np.zeros(p)
    for j in range(p):
        others = [i for i in range(p) if i != j]
        for size in range(p):
            weight = factorial(size) * factorial(p - size - 1) / factorial(p)
            for X in combinations(others, size):
                psi[j] += weight * (v({*X, j}) - (v(X) if X else 0))
    return psi
""",
    ),
    (
        "shapley_exact",
        "factorials of the size with j instead of without",
        """
def shapley_exact(v, p):
    psi = np.zeros(p)
    for j in range(p):
        others = [i for i in range(p) if i != j]
        for size in range(p):
            weight = factorial(size + 1) * factorial(p - size - 1) / factorial(p)
            for X in combinations(others, size):
                psi[j] += weight * (v({*X, j}) - v(X))
    return psi
""",
    ),
    (
        "shapley_estimate",
        "standard deviation with division by m",
        """
def shapley_estimate(v, p, m, rng):
    credits = np.array([credits_of_order(v, rng.permutation(p)) for _ in range(m)])
    return credits.mean(axis=0), credits.std(axis=0) / sqrt(m)
""",
    ),
    (
        "shapley_estimate",
        "standard deviation of one credit, not divided by the root of m",
        """
def shapley_estimate(v, p, m, rng):
    credits = np.array([credits_of_order(v, rng.permutation(p)) for _ in range(m)])
    return credits.mean(axis=0), credits.std(axis=0, ddof=1)
""",
    ),
    (
        "shapley_estimate",
        "a generator of its own, always with the same luck",
        """
def shapley_estimate(v, p, m, rng):
    rng = np.random.default_rng(0)
    credits = np.array([credits_of_order(v, rng.permutation(p)) for _ in range(m)])
    return credits.mean(axis=0), credits.std(axis=0, ddof=1) / sqrt(m)
""",
    ),
    (
        "shapley_estimate",
        "players drawn with replacement",
        """
def shapley_estimate(v, p, m, rng):
    credits = np.array([credits_of_order(v, rng.integers(0, p, p)) for _ in range(m)])
    return credits.mean(axis=0), credits.std(axis=0, ddof=1) / sqrt(m)
""",
    ),
    (
        "shapley_estimate",
        "only cyclic shifts: not all orders are drawn",
        """
def shapley_estimate(v, p, m, rng):
    credits = np.array([credits_of_order(v, np.roll(np.arange(p), rng.integers(p))) for _ in range(m)])
    return credits.mean(axis=0), credits.std(axis=0, ddof=1) / sqrt(m)
""",
    ),
    (
        "shapley_estimate",
        "mean and spread over players instead of over orders",
        """
def shapley_estimate(v, p, m, rng):
    credits = np.array([credits_of_order(v, rng.permutation(p)) for _ in range(m)])
    return credits.mean(axis=1), credits.std(axis=1, ddof=1) / sqrt(p)
""",
    ),
    (
        "worth_of_models",
        "mean of the accuracies instead of accuracy of the mean",
        """
def worth_of_models(X, models, predict, x, y):
    if len(X) == 0:
        return 0.0
    return float(np.mean([np.mean(predict(models[j], x) == y) for j in X]))
""",
    ),
    (
        "worth_of_models",
        "divided by the number of all models instead of those in X",
        """
def worth_of_models(X, models, predict, x, y):
    if len(X) == 0:
        return 0.0
    theta = models[sorted(X)].sum(axis=0) / len(models)
    return float(np.mean(predict(theta, x) == y))
""",
    ),
    (
        "worth_of_models",
        "a model of zeros for the empty coalition",
        """
def worth_of_models(X, models, predict, x, y):
    theta = sum((models[j] for j in X), np.zeros(models.shape[1])) / max(len(X), 1)
    return float(np.mean(predict(theta, x) == y))
""",
    ),
    (
        "worth_of_models",
        "the sum is added up inside the first model",
        """
def worth_of_models(X, models, predict, x, y):
    if len(X) == 0:
        return 0.0
    first, *rest = sorted(X)
    theta = models[first]
    for j in rest:
        theta += models[j]
    theta /= len(X)
    return float(np.mean(predict(theta, x) == y))
""",
    ),
    (
        "worth_of_models",
        "number of right answers instead of their share",
        """
def worth_of_models(X, models, predict, x, y):
    if len(X) == 0:
        return 0.0
    return float(np.sum(predict(models[sorted(X)].mean(axis=0), x) == y))
""",
    ),
    (
        "mixing_weights",
        "absolute values instead of positive parts",
        """
def mixing_weights(psi, models):
    if len(psi) == 1:
        return np.ones(1)
    d = np.linalg.norm(models - models[0], axis=1)
    d[0] = d[1:].min()
    g = np.abs(psi) / np.maximum(d, 1e-5)
    return g / g.sum()
""",
    ),
    (
        "mixing_weights",
        "own distance 0, only kept from dividing by zero",
        """
def mixing_weights(psi, models):
    d = np.linalg.norm(models - models[0], axis=1)
    g = np.maximum(psi, 0) / np.maximum(d, 1e-5)
    return g / g.sum() if g.sum() > 0 else np.eye(len(psi))[0]
""",
    ),
    (
        "mixing_weights",
        "squared distances",
        """
def mixing_weights(psi, models):
    own_only = np.eye(len(psi))[0]
    if len(psi) == 1:
        return own_only
    d = ((models - models[0]) ** 2).sum(axis=1)
    d[0] = d[1:].min()
    g = np.maximum(psi, 0) / np.maximum(d, 1e-5)
    return g / g.sum() if g.sum() > 0 else own_only
""",
    ),
    (
        "mixing_weights",
        "times the distance, so that far models count more",
        """
def mixing_weights(psi, models):
    own_only = np.eye(len(psi))[0]
    if len(psi) == 1:
        return own_only
    d = np.linalg.norm(models - models[0], axis=1)
    d[0] = d[1:].min()
    g = np.maximum(psi, 0) * np.maximum(d, 1e-5)
    return g / g.sum() if g.sum() > 0 else own_only
""",
    ),
    (
        "mixing_weights",
        "no positive value: all models count the same",
        """
def mixing_weights(psi, models):
    if len(psi) == 1:
        return np.ones(1)
    d = np.linalg.norm(models - models[0], axis=1)
    d[0] = d[1:].min()
    g = np.maximum(psi, 0) / np.maximum(d, 1e-5)
    return g / g.sum() if g.sum() > 0 else np.full(len(psi), 1 / len(psi))
""",
    ),
    (
        "mixing_weights",
        "own distance is the mean of the others",
        """
def mixing_weights(psi, models):
    own_only = np.eye(len(psi))[0]
    if len(psi) == 1:
        return own_only
    d = np.linalg.norm(models - models[0], axis=1)
    d[0] = d[1:].mean()
    g = np.maximum(psi, 0) / np.maximum(d, 1e-5)
    return g / g.sum() if g.sum() > 0 else own_only
""",
    ),
    (
        "update_relevance",
        "the relevance of those who did not play decays as well",
        """
def update_relevance(relevance, seen, ids, psi, alpha=0.5):
    relevance, seen = alpha * relevance, seen.copy()
    for j, value in zip(ids, psi):
        relevance[j] += (1 - alpha) * value
        seen[j] = True
    return relevance, seen
""",
    ),
    (
        "update_relevance",
        "changed in place",
        """
def update_relevance(relevance, seen, ids, psi, alpha=0.5):
    for j, value in zip(ids, psi):
        relevance[j] = alpha * relevance[j] + (1 - alpha) * value
        seen[j] = True
    return relevance, seen
""",
    ),
    (
        "update_relevance",
        "alpha is the share of the new value",
        """
def update_relevance(relevance, seen, ids, psi, alpha=0.5):
    relevance, seen = relevance.copy(), seen.copy()
    for j, value in zip(ids, psi):
        relevance[j] = (1 - alpha) * relevance[j] + alpha * value
        seen[j] = True
    return relevance, seen
""",
    ),
    (
        "update_relevance",
        "forgets who was seen before",
        """
def update_relevance(relevance, seen, ids, psi, alpha=0.5):
    relevance, seen = relevance.copy(), np.zeros(len(seen), bool)
    for j, value in zip(ids, psi):
        relevance[j] = alpha * relevance[j] + (1 - alpha) * value
        seen[j] = True
    return relevance, seen
""",
    ),
    (
        "whom_to_ask",
        "the client may ask itself",
        """
def whom_to_ask(relevance, seen, me, k, rng):
    left = [int(j) for j in rng.permutation(len(seen)) if not (seen[j] and relevance[j] <= 0)]
    return sorted(left, key=lambda j: -relevance[j])[:k]
""",
    ),
    (
        "whom_to_ask",
        "equals by their number instead of at random",
        """
def whom_to_ask(relevance, seen, me, k, rng):
    left = [j for j in range(len(seen)) if j != me and not (seen[j] and relevance[j] <= 0)]
    return sorted(left, key=lambda j: -relevance[j])[:k]
""",
    ),
    (
        "whom_to_ask",
        "nobody is refused",
        """
def whom_to_ask(relevance, seen, me, k, rng):
    left = [int(j) for j in rng.permutation(len(seen)) if j != me]
    return sorted(left, key=lambda j: -relevance[j])[:k]
""",
    ),
    (
        "whom_to_ask",
        "those not yet seen are refused too",
        """
def whom_to_ask(relevance, seen, me, k, rng):
    left = [int(j) for j in rng.permutation(len(seen)) if j != me and relevance[j] > 0]
    return sorted(left, key=lambda j: -relevance[j])[:k]
""",
    ),
    (
        "whom_to_ask",
        "one that was seen and has relevance 0 is not refused",
        """
def whom_to_ask(relevance, seen, me, k, rng):
    left = [int(j) for j in rng.permutation(len(seen)) if j != me and relevance[j] >= 0]
    return sorted(left, key=lambda j: -relevance[j])[:k]
""",
    ),
    (
        "whom_to_ask",
        "k drawn at random from those who are not refused",
        """
def whom_to_ask(relevance, seen, me, k, rng):
    left = [int(j) for j in rng.permutation(len(seen)) if j != me and not (seen[j] and relevance[j] <= 0)]
    return left[:k]
""",
    ),
]
