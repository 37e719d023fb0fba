"""Wrong solutions of lab 4 that must lose their exercise's points, as what `test_labs.changed` takes."""

WRONG = {
    "class_cosines": [
        (
            "averages over the classes already",
            "products / (lengths[:, None] * lengths[None] + eps)",
            "(products / (lengths[:, None] * lengths[None] + eps)).mean(axis=-1)",
        ),
        ("divides by one length only", " * lengths[None]", ""),
        ("stays in float32", "np.asarray(heads, dtype=np.float64)", "heads", " + eps", " + np.float32(eps)"),
        ("without eps: a zero vector gives nan", " + eps", ""),
        ("adds eps to each length, not to their product", "axis=-1)", "axis=-1) + eps", " + eps)", ")"),
        (
            "lengths over the classes instead of the features",
            "axis=-1",
            "axis=(1, 2)",
            "lengths[:, None] * lengths[None]",
            "lengths[:, None, None] * lengths[None, :, None]",
        ),
    ],
    "raw_weights": [
        (
            "the same order for both readings: mean first",
            "np.clip(cosines, 0, 1 - 1e-8)).mean(axis=-1)",
            "np.clip(cosines.mean(axis=-1), 0, 1 - 1e-8))",
        ),
        (
            "code: negative cosines are cut off before the mean",
            "np.clip(cosines.mean(axis=-1), 0, 1 - 1e-4)",
            "np.clip(cosines, 0, 1 - 1e-4).mean(axis=-1)",
        ),
        ("eq3: negative cosines are not cut off", "np.clip(cosines, 0, 1 - 1e-8)", "np.minimum(cosines, 1 - 1e-8)"),
        (
            "logarithm to base 10",
            "-np.log(1 - np.clip(cosines, 0",
            "-np.log10(1 - np.clip(cosines, 0",
            "-np.log(1 - np.clip(cosines.mean",
            "-np.log10(1 - np.clip(cosines.mean",
            "-np.log(1e-4)",
            "-np.log10(1e-4)",
        ),
        ("one cap for both readings", "- 1e-8", "- 1e-4"),
        ("the own weight of eq3 comes from the formula", "np.fill_diagonal(weights, 1.0)", "pass"),
        (
            "cuts off in the caller's array",
            "np.clip(cosines, 0, 1 - 1e-8)",
            "np.clip(cosines, 0, 1 - 1e-8, out=cosines)",
        ),
    ],
    "mixing_matrix": [
        ("divides by the sums of the columns", "axis=1, keepdims=True", "axis=0"),
        (
            "softmax of the rows",
            """
e = np.exp(weights - weights.max(axis=1, keepdims=True))
return e / e.sum(axis=1, keepdims=True)
""",
        ),
        (
            "a row of zeros stays a row of zeros",
            """
sums = weights.sum(axis=1, keepdims=True)
return weights / np.where(sums > 0, sums, 1)
""",
        ),
        (
            "divides in place",
            """
for i, row in enumerate(weights):
    if row.sum() > 0:
        weights[i] = row / row.sum()
    else:
        weights[i, i] = 1
return weights
""",
        ),
    ],
    "mix_extractors": [
        (
            "overwrites client 0 before client 1 mixes",
            "new = []",
            "new = states = list(states)",
            "new.append(mixed)",
            "new[i] = mixed",
        ),
        ("columns instead of rows of the matrix", "A[i, j]", "A[j, i]"),
        ("mixes the heads as well", 'name.startswith("extractor.")', "True"),
        ("the head is not a copy", "value.detach().clone()", "value"),
        ('looks for "extractor" anywhere in the name', 'name.startswith("extractor.")', '"extractor" in name'),
        (
            "adds up in the given states",
            "return new",
            """
for state, mixed in zip(states, new):
    for name in state:
        state[name].copy_(mixed[name])
return new
""",
        ),
    ],
    "head_distances": [
        (
            "not squared",
            "raw = ((heads[:, None] - heads[None]) ** 2).sum(axis=(2, 3))",
            "raw = np.linalg.norm(heads[:, None] - heads[None], axis=-1).sum(axis=-1)",
        ),
        ("divides by the largest of its column", "axis=1", "axis=0"),
        ("divides by the largest of all", "raw.max(axis=1, keepdims=True)", "raw.max()"),
        ("equal heads give nan", "np.where(largest > 0, largest, 1)", "largest"),
        ("the largest over the classes instead of their sum", "(axis=(2, 3))", "(axis=3).max(axis=2)"),
    ],
    "collaborators": [
        (
            "the client itself counts in average and minimum",
            "apart.mean(axis=1",
            "D.mean(axis=1",
            "s * least",
            "s * D.min(axis=1, keepdims=True)",
        ),
        (
            "the threshold loosens: s the wrong way round",
            "(1 - s) * apart",
            "s * apart",
            "+ s * least",
            "+ (1 - s) * least",
        ),
        ("counts rounds from 0", "t / beta", "(t - 1) / beta"),
        ("s grows beyond 1 after round beta", "min(t / beta, 1)", "t / beta"),
        ("candidates are ignored", "near & others", "others"),
        (
            "nobody is chosen where no candidate is near enough",
            "np.where(chosen.any(axis=1, keepdims=True), chosen, nearest)",
            "chosen",
        ),
        (
            "strictly below the threshold: the nearest is lost in round beta",
            "D - threshold <= 1e-12",
            "threshold - D > 1e-12",
            "nearest = others & (D - least <= 1e-12)",
            """
nearest = np.zeros_like(others)
nearest[np.arange(N), np.where(others, D, np.inf).argmin(axis=1)] = True
""",
        ),
    ],
    "twins_found": [
        (
            "the client itself is among its closest",
            'closest = np.argsort(-row[others], kind="stable")[: twins.sum()]',
            'closest = np.argsort(-row, kind="stable")[: twins.sum()]',
            "twins[closest]",
            "(groups[closest] == groups[i])",
        ),
        ("the farthest clients first", "-row[others]", "row[others]"),
        ("looks at the single closest client only", "[: twins.sum()]", "[:1]"),
        (
            "a client without twins counts as 0",
            "shares.append(twins[closest].mean())",
            """
shares.append(twins[closest].mean())
    else:
        shares.append(0)
""",
        ),
        ("ties go to the larger number", "i)", "i)[::-1]"),
        ("closeness of columns instead of rows", "enumerate(closeness)", "enumerate(closeness.T)"),
    ],
}
