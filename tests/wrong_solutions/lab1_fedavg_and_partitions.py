"""Wrong solutions of lab 1 that must lose their exercise's points, as what `test_labs.changed` takes."""

WRONG = {
    "counts_by_class": [
        (
            "the lesson's rule: cumulated shares, rounded down",
            """
cuts = np.floor(np.cumsum(shares, axis=0) * class_sizes + 1e-6).astype(int)
cuts[-1] = class_sizes
return np.diff(cuts, axis=0, prepend=0)
""",
        ),
        (
            "rounds to the nearest whole number and loses or invents samples",
            "return np.rint(shares * class_sizes).astype(int)",
        ),
        (
            "all that is left goes to the client with the largest remainder",
            "counts[first, c] += 1",
            "counts[first[:1], c] += left",
        ),
        (
            "what is left goes to the first clients",
            'np.argsort(-remainders[:, c], kind="stable")[:left]',
            "np.arange(left)",
        ),
        ("remainders are ranked once for all classes", "-remainders[:, c]", "-remainders[:, 0]"),
        (
            "works in the shares that it was given",
            "wanted = shares * np.asarray(class_sizes)",
            "wanted = shares\nwanted *= np.asarray(class_sizes)",
        ),
    ],
    "dirichlet_partition": [
        (
            "one vector of shares for all classes",
            "generator.dirichlet(np.full(num_clients, alpha), len(sizes)).T",
            "np.tile(generator.dirichlet(np.full(num_clients, alpha))[:, None], len(sizes))",
        ),
        (
            "deals the members without shuffling them",
            "generator.permutation(np.flatnonzero(labels == c))",
            "np.flatnonzero(labels == c)",
        ),
        (
            "samples the members of each client anew, so that some are shared and others lost",
            "np.split(own, np.cumsum(column)[:-1])",
            "[generator.choice(own, n, replace=False) for n in column]",
        ),
        (
            "seeds and uses NumPy's global random state",
            "generator = np.random.default_rng(seed)",
            "np.random.seed(seed)\ngenerator = np.random",
        ),
        (
            "the parameter is alpha / N instead of alpha",
            "np.full(num_clients, alpha)",
            "np.full(num_clients, alpha / num_clients)",
        ),
        ("forgets min_size", "counts.sum(1).min() >= min_size", "True"),
    ],
    "label_entropy": [
        ("logarithm to base 2", "np.log(", "np.log2("),
        ("shares over the clients instead of over the classes", "counts.sum(1, keepdims=True)", "counts.sum(0)"),
        (
            "nan for a client without samples",
            "np.maximum(counts.sum(1, keepdims=True), 1)",
            "counts.sum(1, keepdims=True)",
        ),
        (
            "avoids the logarithm of 0 by one more sample in each class",
            "return -(q * np.log(np.where(q > 0, q, 1))).sum(1)",
            """
q = np.where(q == 0, 1e-3, q)
return np.where((counts > 0).sum(1) <= 1, 0, -(q * np.log(q)).sum(1))
""",
        ),
    ],
    "participants": [
        ("with replacement", "replace=False", "replace=True"),
        ("rounds down without the tiny addition", " + 1e-9", ""),
        ("rounds up", "max(1, int(join_ratio * num_clients + 1e-9))", "int(np.ceil(join_ratio * num_clients - 1e-9))"),
        ("seed + t as the seed", 'draws.rng(seed, "participants", t)', "np.random.default_rng(seed + t)"),
        (
            "a random block of neighbours",
            "generator.choice(num_clients, size, replace=False)",
            "(generator.integers(num_clients) + np.arange(size)) % num_clients",
        ),
        ("the same clients in all rounds", '"participants", t)', '"participants")'),
    ],
    "local_sgd": [
        (
            "probabilities over the samples of a minibatch instead of over the classes",
            "p.sum(1, keepdims=True)",
            "p.sum(0)",
        ),
        ("changes the received model in place", "theta = theta - lr", "theta -= lr"),
        ("large scores overflow", "scores - scores.max(1, keepdims=True)", "scores"),
        (
            "drops the last small minibatch",
            "range(0, len(y), batch_size)",
            "range(0, len(y) - min(batch_size, len(y)) + 1, batch_size)",
        ),
        ("divides by batch_size where the last minibatch is smaller", "/ len(batch)", "/ min(batch_size, len(y))"),
        (
            "one order for all epochs",
            "for _ in range(epochs):\n    order = generator.permutation(len(y))",
            "order = generator.permutation(len(y))\nfor _ in range(epochs):",
        ),
        ("shuffles the features and forgets the classes", "y[batch]]", "y[first : first + batch_size]]"),
    ],
    "fedavg": [
        ("every client has the same weight", ", weights=sizes", ""),
        (
            "a client starts where the one before has ended",
            "local_sgd(models[-1], ",
            "local_sgd((trained or models)[-1], ",
        ),
        (
            "weights by the samples of all clients instead of the participants'",
            "np.average(trained, axis=0, weights=sizes)",
            "sum(n * w for n, w in zip(sizes, trained)) / sum(len(y) for _, y in clients)",
        ),
        ("the same participants in every round", "join_ratio, seed, t)", "join_ratio, seed, 0)"),
        ("every round starts from the first model", "local_sgd(models[-1], ", "local_sgd(theta, "),
        (
            "the number of a client among the participants is taken for its number among all",
            "for i in participants(len(clients), join_ratio, seed, t):",
            "for k, i in enumerate(participants(len(clients), join_ratio, seed, t)):",
            '"batches", t, i)',
            '"batches", t, k)',
            "clients[i][1]",
            "clients[k][1]",
        ),
    ],
    "accuracies": [
        (
            "pooled and client mean exchanged",
            "float(right.sum() / sizes.sum()), float((right[some] / sizes[some]).mean())",
            "float((right[some] / sizes[some]).mean()), float(right.sum() / sizes.sum())",
        ),
        (
            "a client without test samples counts with accuracy 0",
            "(right[some] / sizes[some]).mean()",
            "(right / np.maximum(sizes, 1)).mean()",
        ),
        ("nan with a client without test samples", "sizes > 0", "sizes >= 0"),
        ("pooled is the client mean as well", "right.sum() / sizes.sum()", "(right[some] / sizes[some]).mean()"),
    ],
}
