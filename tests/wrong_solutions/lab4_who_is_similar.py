"""Plausible mistakes in lab 4: (exercise, what is wrong, source); each must lose the exercise's points."""

WRONG = [
    (
        "class_cosines",
        "averages over the classes already",
        """
def class_cosines(heads, eps=1e-8):
    heads = np.asarray(heads, dtype=np.float64)
    lengths = np.linalg.norm(heads, axis=-1)
    cosines = np.einsum("icd,jcd->ijc", heads, heads) / (lengths[:, None] * lengths + eps)
    return cosines.mean(axis=-1)
""",
    ),
    (
        "class_cosines",
        "divides by one length only",
        """
def class_cosines(heads, eps=1e-8):
    heads = np.asarray(heads, dtype=np.float64)
    lengths = np.linalg.norm(heads, axis=-1)
    return np.einsum("icd,jcd->ijc", heads, heads) / (lengths[:, None] + eps)
""",
    ),
    (
        "class_cosines",
        "stays in float32",
        """
def class_cosines(heads, eps=1e-8):
    lengths = np.linalg.norm(heads, axis=-1)
    return np.einsum("icd,jcd->ijc", heads, heads) / (lengths[:, None] * lengths[None] + np.float32(eps))
""",
    ),
    (
        "class_cosines",
        "without eps: a zero vector gives nan",
        """
def class_cosines(heads, eps=1e-8):
    heads = np.asarray(heads, dtype=np.float64)
    unit = heads / np.linalg.norm(heads, axis=-1, keepdims=True)
    return np.einsum("icd,jcd->ijc", unit, unit)
""",
    ),
    (
        "class_cosines",
        "adds eps to each length, not to their product",
        """
def class_cosines(heads, eps=1e-8):
    heads = np.asarray(heads, dtype=np.float64)
    unit = heads / (np.linalg.norm(heads, axis=-1, keepdims=True) + eps)
    return np.einsum("icd,jcd->ijc", unit, unit)
""",
    ),
    (
        "class_cosines",
        "lengths over the classes instead of the features",
        """
def class_cosines(heads, eps=1e-8):
    heads = np.asarray(heads, dtype=np.float64)
    lengths = np.linalg.norm(heads, axis=(1, 2))
    return np.einsum("icd,jcd->ijc", heads, heads) / (lengths[:, None, None] * lengths[None, :, None] + eps)
""",
    ),
    (
        "raw_weights",
        "the same order for both readings: mean first",
        """
def raw_weights(cosines, reading):
    cap, own = (1e-8, 1.0) if reading == "eq3" else (1e-4, -np.log(1e-4))
    weights = -np.log(1 - np.clip(cosines.mean(axis=-1), 0, 1 - cap))
    np.fill_diagonal(weights, own)
    return weights
""",
    ),
    (
        "raw_weights",
        "code: negative cosines are cut off before the mean",
        """
def raw_weights(cosines, reading):
    if reading == "eq3":
        weights = -np.log(1 - np.clip(cosines, 0, 1 - 1e-8)).mean(axis=-1)
        np.fill_diagonal(weights, 1.0)
    else:
        weights = -np.log(1 - np.clip(cosines, 0, 1 - 1e-4).mean(axis=-1))
        np.fill_diagonal(weights, -np.log(1e-4))
    return weights
""",
    ),
    (
        "raw_weights",
        "eq3: negative cosines are not cut off",
        """
def raw_weights(cosines, reading):
    if reading == "eq3":
        weights = -np.log(1 - np.minimum(cosines, 1 - 1e-8)).mean(axis=-1)
        np.fill_diagonal(weights, 1.0)
    else:
        weights = -np.log(1 - np.clip(cosines.mean(axis=-1), 0, 1 - 1e-4))
        np.fill_diagonal(weights, -np.log(1e-4))
    return weights
""",
    ),
    (
        "raw_weights",
        "logarithm to base 10",
        """
def raw_weights(cosines, reading):
    if reading == "eq3":
        weights = -np.log10(1 - np.clip(cosines, 0, 1 - 1e-8)).mean(axis=-1)
        np.fill_diagonal(weights, 1.0)
    else:
        weights = -np.log10(1 - np.clip(cosines.mean(axis=-1), 0, 1 - 1e-4))
        np.fill_diagonal(weights, -np.log10(1e-4))
    return weights
""",
    ),
    (
        "raw_weights",
        "one cap for both readings",
        """
def raw_weights(cosines, reading):
    if reading == "eq3":
        weights = -np.log(1 - np.clip(cosines, 0, 1 - 1e-4)).mean(axis=-1)
        np.fill_diagonal(weights, 1.0)
    else:
        weights = -np.log(1 - np.clip(cosines.mean(axis=-1), 0, 1 - 1e-4))
        np.fill_diagonal(weights, -np.log(1e-4))
    return weights
""",
    ),
    (
        "raw_weights",
        "the own weight of eq3 comes from the formula",
        """
def raw_weights(cosines, reading):
    if reading == "eq3":
        return -np.log(1 - np.clip(cosines, 0, 1 - 1e-8)).mean(axis=-1)
    weights = -np.log(1 - np.clip(cosines.mean(axis=-1), 0, 1 - 1e-4))
    np.fill_diagonal(weights, -np.log(1e-4))
    return weights
""",
    ),
    (
        "raw_weights",
        "cuts off in the caller's array",
        """
def raw_weights(cosines, reading):
    if reading == "eq3":
        np.clip(cosines, 0, 1 - 1e-8, out=cosines)
        weights = -np.log(1 - cosines).mean(axis=-1)
        np.fill_diagonal(weights, 1.0)
    else:
        weights = -np.log(1 - np.clip(cosines.mean(axis=-1), 0, 1 - 1e-4))
        np.fill_diagonal(weights, -np.log(1e-4))
    return weights
""",
    ),
    (
        "mixing_matrix",
        "divides by the sums of the columns",
        """
def mixing_matrix(weights):
    sums = weights.sum(axis=0)
    return np.where(sums > 0, weights / np.where(sums > 0, sums, 1), np.eye(len(weights)))
""",
    ),
    (
        "mixing_matrix",
        "softmax of the rows",
        """
def mixing_matrix(weights):
    e = np.exp(weights - weights.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
""",
    ),
    (
        "mixing_matrix",
        "a row of zeros stays a row of zeros",
        """
def mixing_matrix(weights):
    sums = weights.sum(axis=1, keepdims=True)
    return weights / np.where(sums > 0, sums, 1)
""",
    ),
    (
        "mixing_matrix",
        "divides in place",
        """
def mixing_matrix(weights):
    for i, row in enumerate(weights):
        if row.sum() > 0:
            weights[i] = row / row.sum()
        else:
            weights[i, i] = 1
    return weights
""",
    ),
    (
        "mix_extractors",
        "overwrites client 0 before client 1 mixes",
        """
def mix_extractors(states, A):
    states = copy.deepcopy(states)
    for i in range(len(states)):
        for name in states[i]:
            if name.startswith("extractor."):
                states[i][name] = sum(float(A[i, j]) * states[j][name] for j in range(len(states)))
    return states
""",
    ),
    (
        "mix_extractors",
        "columns instead of rows of the matrix",
        """
def mix_extractors(states, A):
    new = copy.deepcopy(states)
    for i in range(len(states)):
        for name in states[i]:
            if name.startswith("extractor."):
                new[i][name] = sum(float(A[j, i]) * states[j][name] for j in range(len(states)))
    return new
""",
    ),
    (
        "mix_extractors",
        "mixes the heads as well",
        """
def mix_extractors(states, A):
    everyone = range(len(states))
    return [{k: sum(float(A[i, j]) * states[j][k] for j in everyone) for k in states[i]} for i in everyone]
""",
    ),
    (
        "mix_extractors",
        "the head is not a copy",
        """
def mix_extractors(states, A):
    new = []
    for i, own in enumerate(states):
        mixed = dict(own)
        for name in own:
            if name.startswith("extractor."):
                mixed[name] = sum(float(A[i, j]) * state[name] for j, state in enumerate(states))
        new.append(mixed)
    return new
""",
    ),
    (
        "mix_extractors",
        'looks for "extractor" anywhere in the name',
        """
def mix_extractors(states, A):
    new = copy.deepcopy(states)
    for i in range(len(states)):
        for name in states[i]:
            if "extractor" in name:
                new[i][name] = sum(float(A[i, j]) * states[j][name] for j in range(len(states)))
    return new
""",
    ),
    (
        "mix_extractors",
        "adds up in the given states",
        """
def mix_extractors(states, A):
    new = []
    for i, own in enumerate(states):
        mixed = {name: value.clone() for name, value in own.items()}
        for name in own:
            if name.startswith("extractor."):
                mixed[name] = sum(float(A[i, j]) * state[name] for j, state in enumerate(states))
        new.append(mixed)
    for state, mixed in zip(states, new):
        for name in state:
            state[name].copy_(mixed[name])
    return new
""",
    ),
    (
        "head_distances",
        "not squared",
        """
def head_distances(heads):
    heads = np.asarray(heads, dtype=np.float64)
    raw = np.linalg.norm(heads[:, None] - heads[None], axis=-1).sum(axis=-1)
    largest = raw.max(axis=1, keepdims=True)
    return raw / np.where(largest > 0, largest, 1)
""",
    ),
    (
        "head_distances",
        "divides by the largest of its column",
        """
def head_distances(heads):
    heads = np.asarray(heads, dtype=np.float64)
    raw = ((heads[:, None] - heads[None]) ** 2).sum(axis=(2, 3))
    largest = raw.max(axis=0, keepdims=True)
    return raw / np.where(largest > 0, largest, 1)
""",
    ),
    (
        "head_distances",
        "divides by the largest of all",
        """
def head_distances(heads):
    heads = np.asarray(heads, dtype=np.float64)
    raw = ((heads[:, None] - heads[None]) ** 2).sum(axis=(2, 3))
    return raw / max(raw.max(), 1e-300)
""",
    ),
    (
        "head_distances",
        "equal heads give nan",
        """
def head_distances(heads):
    heads = np.asarray(heads, dtype=np.float64)
    raw = ((heads[:, None] - heads[None]) ** 2).sum(axis=(2, 3))
    return raw / raw.max(axis=1, keepdims=True)
""",
    ),
    (
        "head_distances",
        "the largest over the classes instead of their sum",
        """
def head_distances(heads):
    heads = np.asarray(heads, dtype=np.float64)
    raw = ((heads[:, None] - heads[None]) ** 2).sum(axis=3).max(axis=2)
    largest = raw.max(axis=1, keepdims=True)
    return raw / np.where(largest > 0, largest, 1)
""",
    ),
    (
        "collaborators",
        "the client itself counts in average and minimum",
        """
def collaborators(D, near, t, beta):
    s = min(t / beta, 1)
    threshold = (1 - s) * D.mean(axis=1, keepdims=True) + s * D.min(axis=1, keepdims=True)
    others = ~np.eye(len(D), dtype=bool)
    least = np.where(others, D, np.inf).min(axis=1, keepdims=True)
    chosen = near & (D - threshold <= 1e-12)
    return np.where(chosen.any(axis=1, keepdims=True), chosen, others & (D - least <= 1e-12))
""",
    ),
    (
        "collaborators",
        "the threshold loosens: s the wrong way round",
        """
def collaborators(D, near, t, beta):
    others = ~np.eye(len(D), dtype=bool)
    apart = D[others].reshape(len(D), -1)
    s, least = min(t / beta, 1), apart.min(axis=1, keepdims=True)
    threshold = s * apart.mean(axis=1, keepdims=True) + (1 - s) * least
    chosen = near & (D - threshold <= 1e-12)
    return np.where(chosen.any(axis=1, keepdims=True), chosen, others & (D - least <= 1e-12))
""",
    ),
    (
        "collaborators",
        "counts rounds from 0",
        """
def collaborators(D, near, t, beta):
    others = ~np.eye(len(D), dtype=bool)
    apart = D[others].reshape(len(D), -1)
    s, least = min((t - 1) / beta, 1), apart.min(axis=1, keepdims=True)
    threshold = (1 - s) * apart.mean(axis=1, keepdims=True) + s * least
    chosen = near & (D - threshold <= 1e-12)
    return np.where(chosen.any(axis=1, keepdims=True), chosen, others & (D - least <= 1e-12))
""",
    ),
    (
        "collaborators",
        "s grows beyond 1 after round beta",
        """
def collaborators(D, near, t, beta):
    others = ~np.eye(len(D), dtype=bool)
    apart = D[others].reshape(len(D), -1)
    s, least = t / beta, apart.min(axis=1, keepdims=True)
    threshold = (1 - s) * apart.mean(axis=1, keepdims=True) + s * least
    chosen = near & (D - threshold <= 1e-12)
    return np.where(chosen.any(axis=1, keepdims=True), chosen, others & (D - least <= 1e-12))
""",
    ),
    (
        "collaborators",
        "candidates are ignored",
        """
def collaborators(D, near, t, beta):
    others = ~np.eye(len(D), dtype=bool)
    apart = D[others].reshape(len(D), -1)
    s, least = min(t / beta, 1), apart.min(axis=1, keepdims=True)
    threshold = (1 - s) * apart.mean(axis=1, keepdims=True) + s * least
    return others & (D - threshold <= 1e-12)
""",
    ),
    (
        "collaborators",
        "nobody is chosen where no candidate is near enough",
        """
def collaborators(D, near, t, beta):
    others = ~np.eye(len(D), dtype=bool)
    apart = D[others].reshape(len(D), -1)
    s = min(t / beta, 1)
    threshold = (1 - s) * apart.mean(axis=1, keepdims=True) + s * apart.min(axis=1, keepdims=True)
    return near & (D - threshold <= 1e-12)
""",
    ),
    (
        "collaborators",
        "strictly below the threshold: the nearest is lost in round beta",
        """
def collaborators(D, near, t, beta):
    others = ~np.eye(len(D), dtype=bool)
    apart = D[others].reshape(len(D), -1)
    s, least = min(t / beta, 1), apart.min(axis=1, keepdims=True)
    threshold = (1 - s) * apart.mean(axis=1, keepdims=True) + s * least
    chosen = near & (threshold - D > 1e-12)
    first = np.zeros_like(chosen)
    first[np.arange(len(D)), np.where(others, D, np.inf).argmin(axis=1)] = True
    return np.where(chosen.any(axis=1, keepdims=True), chosen, first)
""",
    ),
    (
        "twins_found",
        "the client itself is among its closest",
        """
def twins_found(closeness, groups):
    shares = []
    for i in range(len(groups)):
        m = (groups == groups[i]).sum() - 1
        if m:
            shares.append((groups[np.argsort(-closeness[i], kind="stable")[:m]] == groups[i]).mean())
    return float(np.mean(shares))
""",
    ),
    (
        "twins_found",
        "the farthest clients first",
        """
def twins_found(closeness, groups):
    shares = []
    for i, row in enumerate(closeness):
        others = np.delete(np.arange(len(groups)), i)
        twins = groups[others] == groups[i]
        if twins.any():
            shares.append(twins[np.argsort(row[others], kind="stable")[: twins.sum()]].mean())
    return float(np.mean(shares))
""",
    ),
    (
        "twins_found",
        "looks at the single closest client only",
        """
def twins_found(closeness, groups):
    shares = []
    for i, row in enumerate(closeness):
        others = np.delete(np.arange(len(groups)), i)
        twins = groups[others] == groups[i]
        if twins.any():
            shares.append(float(twins[np.argmax(row[others])]))
    return float(np.mean(shares))
""",
    ),
    (
        "twins_found",
        "a client without twins counts as 0",
        """
def twins_found(closeness, groups):
    shares = []
    for i, row in enumerate(closeness):
        others = np.delete(np.arange(len(groups)), i)
        twins = groups[others] == groups[i]
        closest = np.argsort(-row[others], kind="stable")[: twins.sum()]
        shares.append(twins[closest].sum() / max(twins.sum(), 1))
    return float(np.mean(shares))
""",
    ),
    (
        "twins_found",
        "ties go to the larger number",
        """
def twins_found(closeness, groups):
    shares = []
    for i, row in enumerate(closeness):
        others = np.delete(np.arange(len(groups)), i)[::-1]
        twins = groups[others] == groups[i]
        if twins.any():
            shares.append(twins[np.argsort(-row[others], kind="stable")[: twins.sum()]].mean())
    return float(np.mean(shares))
""",
    ),
    (
        "twins_found",
        "closeness of columns instead of rows",
        """
def twins_found(closeness, groups):
    shares = []
    for i, row in enumerate(closeness.T):
        others = np.delete(np.arange(len(groups)), i)
        twins = groups[others] == groups[i]
        if twins.any():
            shares.append(twins[np.argsort(-row[others], kind="stable")[: twins.sum()]].mean())
    return float(np.mean(shares))
""",
    ),
]
