"""Wrong solutions of lab 1 that must lose their exercise's points."""

WRONG = [
    (
        "counts_by_class",
        "the lesson's rule: cumulated shares, rounded down",
        """
def counts_by_class(shares, class_sizes):
    cuts = np.floor(np.cumsum(shares, axis=0) * class_sizes + 1e-6).astype(int)
    cuts[-1] = class_sizes
    return np.diff(cuts, axis=0, prepend=0)
""",
    ),
    (
        "counts_by_class",
        "rounds to the nearest whole number and loses or invents samples",
        """
def counts_by_class(shares, class_sizes):
    return np.rint(shares * class_sizes).astype(int)
""",
    ),
    (
        "counts_by_class",
        "all that is left goes to the client with the largest remainder",
        """
def counts_by_class(shares, class_sizes):
    wanted = shares * class_sizes
    counts = np.floor(wanted).astype(int)
    for c in range(len(class_sizes)):
        counts[np.argmax(wanted[:, c] - counts[:, c]), c] += class_sizes[c] - counts[:, c].sum()
    return counts
""",
    ),
    (
        "counts_by_class",
        "what is left goes to the first clients",
        """
def counts_by_class(shares, class_sizes):
    counts = np.floor(shares * class_sizes).astype(int)
    for c in range(len(class_sizes)):
        counts[: class_sizes[c] - counts[:, c].sum(), c] += 1
    return counts
""",
    ),
    (
        "counts_by_class",
        "remainders are ranked once for all classes",
        """
def counts_by_class(shares, class_sizes):
    wanted = shares * class_sizes
    counts = np.floor(wanted).astype(int)
    order = np.argsort(-(wanted - counts)[:, 0], kind="stable")
    for c in range(len(class_sizes)):
        counts[order[: class_sizes[c] - counts[:, c].sum()], c] += 1
    return counts
""",
    ),
    (
        "counts_by_class",
        "works in the shares that it was given",
        """
def counts_by_class(shares, class_sizes):
    shares *= class_sizes
    counts = np.floor(shares).astype(int)
    for c in range(len(class_sizes)):
        left = class_sizes[c] - counts[:, c].sum()
        counts[np.argsort(-(shares - counts)[:, c], kind="stable")[:left], c] += 1
    return counts
""",
    ),
    (
        "dirichlet_partition",
        "one vector of shares for all classes",
        """
def dirichlet_partition(labels, num_clients, alpha, min_size, seed):
    generator = np.random.default_rng(seed)
    sizes = np.bincount(labels)
    counts = np.full((num_clients, len(sizes)), -1)
    while counts.sum(1).min() < min_size:
        shares = np.tile(generator.dirichlet([alpha] * num_clients)[:, None], len(sizes))
        counts = counts_by_class(shares, sizes)
    owned = [[] for _ in range(num_clients)]
    for c in range(len(sizes)):
        members = generator.permutation(np.flatnonzero(labels == c))
        for i, part in enumerate(np.split(members, np.cumsum(counts[:, c])[:-1])):
            owned[i].extend(part)
    return [np.array(own, dtype=int) for own in owned]
""",
    ),
    (
        "dirichlet_partition",
        "deals the members without shuffling them",
        """
def dirichlet_partition(labels, num_clients, alpha, min_size, seed):
    generator = np.random.default_rng(seed)
    sizes = np.bincount(labels)
    counts = np.full((num_clients, len(sizes)), -1)
    while counts.sum(1).min() < min_size:
        counts = counts_by_class(generator.dirichlet([alpha] * num_clients, len(sizes)).T, sizes)
    owned = [[] for _ in range(num_clients)]
    for c in range(len(sizes)):
        members = np.flatnonzero(labels == c)
        for i, part in enumerate(np.split(members, np.cumsum(counts[:, c])[:-1])):
            owned[i].extend(part)
    return [np.array(own, dtype=int) for own in owned]
""",
    ),
    (
        "dirichlet_partition",
        "samples the members of each client anew, so that some are shared and others lost",
        """
def dirichlet_partition(labels, num_clients, alpha, min_size, seed):
    generator = np.random.default_rng(seed)
    sizes = np.bincount(labels)
    counts = np.full((num_clients, len(sizes)), -1)
    while counts.sum(1).min() < min_size:
        counts = counts_by_class(generator.dirichlet([alpha] * num_clients, len(sizes)).T, sizes)
    members = [np.flatnonzero(labels == c) for c in range(len(sizes))]
    return [
        np.concatenate([generator.choice(own, n, replace=False) for own, n in zip(members, row)]) for row in counts
    ]
""",
    ),
    (
        "dirichlet_partition",
        "seeds and uses NumPy's global random state",
        """
def dirichlet_partition(labels, num_clients, alpha, min_size, seed):
    np.random.seed(seed)
    sizes = np.bincount(labels)
    counts = np.full((num_clients, len(sizes)), -1)
    while counts.sum(1).min() < min_size:
        counts = counts_by_class(np.random.dirichlet([alpha] * num_clients, len(sizes)).T, sizes)
    owned = [[] for _ in range(num_clients)]
    for c in range(len(sizes)):
        members = np.random.permutation(np.flatnonzero(labels == c))
        for i, part in enumerate(np.split(members, np.cumsum(counts[:, c])[:-1])):
            owned[i].extend(part)
    return [np.array(own, dtype=int) for own in owned]
""",
    ),
    (
        "dirichlet_partition",
        "the parameter is alpha / N instead of alpha",
        """
def dirichlet_partition(labels, num_clients, alpha, min_size, seed):
    generator = np.random.default_rng(seed)
    sizes = np.bincount(labels)
    counts = np.full((num_clients, len(sizes)), -1)
    while counts.sum(1).min() < min_size:
        counts = counts_by_class(generator.dirichlet([alpha / num_clients] * num_clients, len(sizes)).T, sizes)
    owned = [[] for _ in range(num_clients)]
    for c in range(len(sizes)):
        members = generator.permutation(np.flatnonzero(labels == c))
        for i, part in enumerate(np.split(members, np.cumsum(counts[:, c])[:-1])):
            owned[i].extend(part)
    return [np.array(own, dtype=int) for own in owned]
""",
    ),
    (
        "dirichlet_partition",
        "forgets min_size",
        """
def dirichlet_partition(labels, num_clients, alpha, min_size, seed):
    generator = np.random.default_rng(seed)
    sizes = np.bincount(labels)
    counts = counts_by_class(generator.dirichlet([alpha] * num_clients, len(sizes)).T, sizes)
    owned = [[] for _ in range(num_clients)]
    for c in range(len(sizes)):
        members = generator.permutation(np.flatnonzero(labels == c))
        for i, part in enumerate(np.split(members, np.cumsum(counts[:, c])[:-1])):
            owned[i].extend(part)
    return [np.array(own, dtype=int) for own in owned]
""",
    ),
    (
        "label_entropy",
        "logarithm to base 2",
        """
def label_entropy(counts):
    q = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return -(q * np.log2(np.where(q > 0, q, 1))).sum(1)
""",
    ),
    (
        "label_entropy",
        "shares over the clients instead of over the classes",
        """
def label_entropy(counts):
    q = counts / np.maximum(counts.sum(0), 1)
    return -(q * np.log(np.where(q > 0, q, 1))).sum(1)
""",
    ),
    (
        "label_entropy",
        "nan for a client without samples",
        """
def label_entropy(counts):
    q = counts / counts.sum(1, keepdims=True)
    return -(q * np.log(np.where(q > 0, q, 1))).sum(1)
""",
    ),
    (
        "label_entropy",
        "avoids the logarithm of 0 by one more sample in each class",
        """
def label_entropy(counts):
    q = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    q = np.where(q == 0, 1e-3, q)
    return np.where((counts > 0).sum(1) <= 1, 0, -(q * np.log(q)).sum(1))
""",
    ),
    (
        "participants",
        "with replacement",
        """
def participants(num_clients, join_ratio, seed, t):
    size = max(1, int(join_ratio * num_clients + 1e-9))
    return np.sort(np.random.default_rng([seed, t]).integers(num_clients, size=size))
""",
    ),
    (
        "participants",
        "rounds down without the tiny addition",
        """
def participants(num_clients, join_ratio, seed, t):
    size = max(1, int(join_ratio * num_clients))
    return np.sort(np.random.default_rng([seed, t]).choice(num_clients, size, replace=False))
""",
    ),
    (
        "participants",
        "rounds up",
        """
def participants(num_clients, join_ratio, seed, t):
    size = int(np.ceil(join_ratio * num_clients - 1e-9))
    return np.sort(np.random.default_rng([seed, t]).choice(num_clients, size, replace=False))
""",
    ),
    (
        "participants",
        "seed + t as the seed",
        """
def participants(num_clients, join_ratio, seed, t):
    size = max(1, int(join_ratio * num_clients + 1e-9))
    return np.sort(np.random.default_rng(seed + t).choice(num_clients, size, replace=False))
""",
    ),
    (
        "participants",
        "a random block of neighbours",
        """
def participants(num_clients, join_ratio, seed, t):
    size = max(1, int(join_ratio * num_clients + 1e-9))
    first = np.random.default_rng([seed, t]).integers(num_clients)
    return np.sort((first + np.arange(size)) % num_clients)
""",
    ),
    (
        "participants",
        "the same clients in all rounds",
        """
def participants(num_clients, join_ratio, seed, t):
    size = max(1, int(join_ratio * num_clients + 1e-9))
    return np.sort(np.random.default_rng(seed).choice(num_clients, size, replace=False))
""",
    ),
    (
        "local_sgd",
        "probabilities over the samples of a minibatch instead of over the classes",
        """
def local_sgd(theta, x, y, epochs, batch_size, lr, generator):
    for _ in range(epochs):
        order = generator.permutation(len(y))
        for k in range(0, len(y), batch_size):
            b = order[k : k + batch_size]
            p = np.exp(x[b] @ theta)
            p = p / p.sum(0)
            theta = theta - lr * x[b].T @ (p - np.eye(theta.shape[1])[y[b]]) / len(b)
    return theta
""",
    ),
    (
        "local_sgd",
        "changes the received model in place",
        """
def local_sgd(theta, x, y, epochs, batch_size, lr, generator):
    for _ in range(epochs):
        order = generator.permutation(len(y))
        for k in range(0, len(y), batch_size):
            b = order[k : k + batch_size]
            s = x[b] @ theta
            p = np.exp(s - s.max(1, keepdims=True))
            p = p / p.sum(1, keepdims=True)
            theta -= lr * x[b].T @ (p - np.eye(theta.shape[1])[y[b]]) / len(b)
    return theta
""",
    ),
    (
        "local_sgd",
        "large scores overflow",
        """
def local_sgd(theta, x, y, epochs, batch_size, lr, generator):
    for _ in range(epochs):
        order = generator.permutation(len(y))
        for k in range(0, len(y), batch_size):
            b = order[k : k + batch_size]
            p = np.exp(x[b] @ theta)
            p = p / p.sum(1, keepdims=True)
            theta = theta - lr * x[b].T @ (p - np.eye(theta.shape[1])[y[b]]) / len(b)
    return theta
""",
    ),
    (
        "local_sgd",
        "drops the last small minibatch",
        """
def local_sgd(theta, x, y, epochs, batch_size, lr, generator):
    batch_size = min(batch_size, len(y))
    for _ in range(epochs):
        order = generator.permutation(len(y))
        for k in range(0, len(y) - batch_size + 1, batch_size):
            b = order[k : k + batch_size]
            s = x[b] @ theta
            p = np.exp(s - s.max(1, keepdims=True))
            p = p / p.sum(1, keepdims=True)
            theta = theta - lr * x[b].T @ (p - np.eye(theta.shape[1])[y[b]]) / len(b)
    return theta
""",
    ),
    (
        "local_sgd",
        "divides by batch_size where the last minibatch is smaller",
        """
def local_sgd(theta, x, y, epochs, batch_size, lr, generator):
    batch_size = min(batch_size, len(y))
    for _ in range(epochs):
        order = generator.permutation(len(y))
        for k in range(0, len(y), batch_size):
            b = order[k : k + batch_size]
            s = x[b] @ theta
            p = np.exp(s - s.max(1, keepdims=True))
            p = p / p.sum(1, keepdims=True)
            theta = theta - lr * x[b].T @ (p - np.eye(theta.shape[1])[y[b]]) / batch_size
    return theta
""",
    ),
    (
        "local_sgd",
        "one order for all epochs",
        """
def local_sgd(theta, x, y, epochs, batch_size, lr, generator):
    order = generator.permutation(len(y))
    for _ in range(epochs):
        for k in range(0, len(y), batch_size):
            b = order[k : k + batch_size]
            s = x[b] @ theta
            p = np.exp(s - s.max(1, keepdims=True))
            p = p / p.sum(1, keepdims=True)
            theta = theta - lr * x[b].T @ (p - np.eye(theta.shape[1])[y[b]]) / len(b)
    return theta
""",
    ),
    (
        "local_sgd",
        "shuffles the features and forgets the classes",
        """
def local_sgd(theta, x, y, epochs, batch_size, lr, generator):
    for _ in range(epochs):
        shuffled = x[generator.permutation(len(y))]
        for k in range(0, len(y), batch_size):
            own, right = shuffled[k : k + batch_size], y[k : k + batch_size]
            s = own @ theta
            p = np.exp(s - s.max(1, keepdims=True))
            p = p / p.sum(1, keepdims=True)
            theta = theta - lr * own.T @ (p - np.eye(theta.shape[1])[right]) / len(right)
    return theta
""",
    ),
    (
        "fedavg",
        "every client has the same weight",
        """
def fedavg(theta, clients, rounds, join_ratio, epochs, batch_size, lr, seed):
    models = [theta]
    for t in range(rounds):
        ends = [
            local_sgd(models[-1], *clients[i], epochs, batch_size, lr, draws.rng(seed, "batches", t, i))
            for i in participants(len(clients), join_ratio, seed, t)
        ]
        models.append(np.mean(ends, axis=0))
    return models
""",
    ),
    (
        "fedavg",
        "a client starts where the one before has ended",
        """
def fedavg(theta, clients, rounds, join_ratio, epochs, batch_size, lr, seed):
    models = [theta]
    for t in range(rounds):
        chosen = participants(len(clients), join_ratio, seed, t)
        ends = []
        for i in chosen:
            theta = local_sgd(theta, *clients[i], epochs, batch_size, lr, draws.rng(seed, "batches", t, i))
            ends.append(theta)
        theta = np.average(ends, axis=0, weights=[len(clients[i][1]) for i in chosen])
        models.append(theta)
    return models
""",
    ),
    (
        "fedavg",
        "weights by the samples of all clients instead of the participants'",
        """
def fedavg(theta, clients, rounds, join_ratio, epochs, batch_size, lr, seed):
    models, n = [theta], sum(len(y) for _, y in clients)
    for t in range(rounds):
        new = np.zeros_like(theta)
        for i in participants(len(clients), join_ratio, seed, t):
            x, y = clients[i]
            own = local_sgd(models[-1], x, y, epochs, batch_size, lr, draws.rng(seed, "batches", t, i))
            new += len(y) / n * own
        models.append(new)
    return models
""",
    ),
    (
        "fedavg",
        "the same participants in every round",
        """
def fedavg(theta, clients, rounds, join_ratio, epochs, batch_size, lr, seed):
    models, chosen = [theta], participants(len(clients), join_ratio, seed, 0)
    for t in range(rounds):
        ends = [
            local_sgd(models[-1], *clients[i], epochs, batch_size, lr, draws.rng(seed, "batches", t, i))
            for i in chosen
        ]
        models.append(np.average(ends, axis=0, weights=[len(clients[i][1]) for i in chosen]))
    return models
""",
    ),
    (
        "fedavg",
        "every round starts from the first model",
        """
def fedavg(theta, clients, rounds, join_ratio, epochs, batch_size, lr, seed):
    models = [theta]
    for t in range(rounds):
        chosen = participants(len(clients), join_ratio, seed, t)
        ends = [
            local_sgd(theta, *clients[i], epochs, batch_size, lr, draws.rng(seed, "batches", t, i)) for i in chosen
        ]
        models.append(np.average(ends, axis=0, weights=[len(clients[i][1]) for i in chosen]))
    return models
""",
    ),
    (
        "fedavg",
        "the number of a client among the participants is taken for its number among all",
        """
def fedavg(theta, clients, rounds, join_ratio, epochs, batch_size, lr, seed):
    models = [theta]
    for t in range(rounds):
        chosen = participants(len(clients), join_ratio, seed, t)
        ends = [
            local_sgd(models[-1], *clients[i], epochs, batch_size, lr, draws.rng(seed, "batches", t, k))
            for k, i in enumerate(chosen)
        ]
        models.append(np.average(ends, axis=0, weights=[len(clients[k][1]) for k in range(len(chosen))]))
    return models
""",
    ),
    (
        "accuracies",
        "pooled and mean over clients exchanged",
        """
def accuracies(theta, clients):
    right = [((x @ theta).argmax(1) == y) for x, y in clients if len(y)]
    return float(np.mean([own.mean() for own in right])), float(np.concatenate(right).mean())
""",
    ),
    (
        "accuracies",
        "a client without test samples counts with accuracy 0",
        """
def accuracies(theta, clients):
    right = np.array([((x @ theta).argmax(1) == y).sum() for x, y in clients])
    sizes = np.array([len(y) for _, y in clients])
    return right.sum() / sizes.sum(), np.mean(right / np.maximum(sizes, 1))
""",
    ),
    (
        "accuracies",
        "nan with a client without test samples",
        """
def accuracies(theta, clients):
    right = np.array([((x @ theta).argmax(1) == y).sum() for x, y in clients])
    sizes = np.array([len(y) for _, y in clients])
    return right.sum() / sizes.sum(), np.mean(right / sizes)
""",
    ),
    (
        "accuracies",
        "pooled is the mean over clients as well",
        """
def accuracies(theta, clients):
    own = [((x @ theta).argmax(1) == y).mean() for x, y in clients if len(y)]
    return np.mean(own), np.mean(own)
""",
    ),
]
