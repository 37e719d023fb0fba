"""Wrong solutions of lab 2 that must lose their exercise's points."""

WRONG = [
    (
        "drift",
        "distances to the received model instead of to the centre",
        """
def drift(start, ends):
    updates = ends - start
    cosines = torch.nn.functional.cosine_similarity(updates[:, None], updates[None], dim=-1)
    i, j = torch.triu_indices(len(ends), len(ends), 1)
    return float(updates.norm(dim=1).mean()), float(cosines[i, j].mean())
""",
    ),
    (
        "drift",
        "the mean cosine counts every client with itself",
        """
def drift(start, ends):
    updates = ends - start
    cosines = torch.nn.functional.cosine_similarity(updates[:, None], updates[None], dim=-1)
    return float((ends - ends.mean(0)).norm(dim=1).mean()), float(cosines.mean())
""",
    ),
    (
        "drift",
        "cosines of the models instead of the updates",
        """
def drift(start, ends):
    cosines = torch.nn.functional.cosine_similarity(ends[:, None], ends[None], dim=-1)
    i, j = torch.triu_indices(len(ends), len(ends), 1)
    return float((ends - ends.mean(0)).norm(dim=1).mean()), float(cosines[i, j].mean())
""",
    ),
    (
        "drift",
        "root of the mean square instead of the mean distance",
        """
def drift(start, ends):
    updates = ends - start
    cosines = torch.nn.functional.cosine_similarity(updates[:, None], updates[None], dim=-1)
    i, j = torch.triu_indices(len(ends), len(ends), 1)
    return float((ends - ends.mean(0)).square().sum(1).mean().sqrt()), float(cosines[i, j].mean())
""",
    ),
    (
        "drift",
        "nan for a client that has not moved",
        """
def drift(start, ends):
    updates = ends - start
    units = updates / updates.norm(dim=1, keepdim=True)
    i, j = torch.triu_indices(len(ends), len(ends), 1)
    return float((ends - ends.mean(0)).norm(dim=1).mean()), float((units[i] * units[j]).sum(1).mean())
""",
    ),
    (
        "drift",
        "cosines of neighbours in the list only",
        """
def drift(start, ends):
    updates = ends - start
    cosines = torch.nn.functional.cosine_similarity(updates[1:], updates[:-1], dim=1)
    return float((ends - ends.mean(0)).norm(dim=1).mean()), float(cosines.mean())
""",
    ),
    (
        "fedprox_client",
        "forgets the pull",
        """
def fedprox_client(gradient, received, mu, steps, lr):
    w = received.clone()
    for _ in range(steps):
        w = w - lr * gradient(w)
    return w
""",
    ),
    (
        "fedprox_client",
        "pushes away from the received model",
        """
def fedprox_client(gradient, received, mu, steps, lr):
    w = received.clone()
    for _ in range(steps):
        w = w - lr * (gradient(w) - mu * (w - received))
    return w
""",
    ),
    (
        "fedprox_client",
        "half of the pull",
        """
def fedprox_client(gradient, received, mu, steps, lr):
    w = received.clone()
    for _ in range(steps):
        w = w - lr * (gradient(w) + mu / 2 * (w - received))
    return w
""",
    ),
    (
        "fedprox_client",
        "changes the received model in place, so that the pull is always 0",
        """
def fedprox_client(gradient, received, mu, steps, lr):
    w = received
    for _ in range(steps):
        w -= lr * (gradient(w) + mu * (w - received))
    return w
""",
    ),
    (
        "fedprox_client",
        "the pull has the length mu: the norm is not squared",
        """
def fedprox_client(gradient, received, mu, steps, lr):
    w = received.clone()
    for _ in range(steps):
        away = w - received
        w = w - lr * (gradient(w) + mu * away / away.norm().clamp(min=1e-12))
    return w
""",
    ),
    (
        "fedprox_client",
        "pulled to the model of the step before instead of the received one",
        """
def fedprox_client(gradient, received, mu, steps, lr):
    w = before = received.clone()
    for _ in range(steps):
        w, before = w - lr * (gradient(w) + mu * (w - before)), w
    return w
""",
    ),
    (
        "fedprox_limit",
        "forgets mu inside rho",
        """
def fedprox_limit(a, m, mu, lr, steps):
    share = a / (a + mu) * (1 - (1 - lr * a) ** steps)
    return (share * m).sum(0) / share.sum(0)
""",
    ),
    (
        "fedprox_limit",
        "forgets that the local problem's minimum is not the client's",
        """
def fedprox_limit(a, m, mu, lr, steps):
    share = 1 - (1 - lr * (a + mu)) ** steps
    return (share * m).sum(0) / share.sum(0)
""",
    ),
    (
        "fedprox_limit",
        "the formula for completely solved local problems",
        """
def fedprox_limit(a, m, mu, lr, steps):
    share = a / (a + mu)
    return (share * m).sum(0) / share.sum(0)
""",
    ),
    (
        "fedprox_limit",
        "one curvature for all coordinates of a client",
        """
def fedprox_limit(a, m, mu, lr, steps):
    a = a.mean(1, keepdim=True)
    share = a / (a + mu) * (1 - (1 - lr * (a + mu)) ** steps)
    return (share * m).sum(0) / share.sum(0)
""",
    ),
    (
        "fedprox_limit",
        "the shares of all coordinates are added up",
        """
def fedprox_limit(a, m, mu, lr, steps):
    share = a / (a + mu) * (1 - (1 - lr * (a + mu)) ** steps)
    return (share * m).sum(0) / share.sum()
""",
    ),
    (
        "feddyn_client",
        "adds the memory instead of subtracting it",
        """
def feddyn_client(gradient, received, g, alpha, steps, lr):
    w = received.clone()
    for _ in range(steps):
        w = w - lr * (gradient(w) + g + alpha * (w - received))
    return w, g - alpha * (w - received)
""",
    ),
    (
        "feddyn_client",
        "the memory grows with the wrong sign",
        """
def feddyn_client(gradient, received, g, alpha, steps, lr):
    w = received.clone()
    for _ in range(steps):
        w = w - lr * (gradient(w) - g + alpha * (w - received))
    return w, g + alpha * (w - received)
""",
    ),
    (
        "feddyn_client",
        "the memory changes after every step",
        """
def feddyn_client(gradient, received, g, alpha, steps, lr):
    w = received.clone()
    for _ in range(steps):
        w = w - lr * (gradient(w) - g + alpha * (w - received))
        g = g - alpha * (w - received)
    return w, g
""",
    ),
    (
        "feddyn_client",
        "the memory is replaced instead of changed",
        """
def feddyn_client(gradient, received, g, alpha, steps, lr):
    w = received.clone()
    for _ in range(steps):
        w = w - lr * (gradient(w) - g + alpha * (w - received))
    return w, -alpha * (w - received)
""",
    ),
    (
        "feddyn_client",
        "the memory is the gradient at the end, which is equal only if the local problem is solved",
        """
def feddyn_client(gradient, received, g, alpha, steps, lr):
    w = received.clone()
    for _ in range(steps):
        w = w - lr * (gradient(w) - g + alpha * (w - received))
    return w, gradient(w)
""",
    ),
    (
        "feddyn_client",
        "the new memory has no alpha",
        """
def feddyn_client(gradient, received, g, alpha, steps, lr):
    w = received.clone()
    for _ in range(steps):
        w = w - lr * (gradient(w) - g + alpha * (w - received))
    return w, g - (w - received)
""",
    ),
    (
        "feddyn_client",
        "changes the memory in place",
        """
def feddyn_client(gradient, received, g, alpha, steps, lr):
    w = received.clone()
    for _ in range(steps):
        w = w - lr * (gradient(w) - g + alpha * (w - received))
    g -= alpha * (w - received)
    return w, g
""",
    ),
    (
        "feddyn_server",
        "h is divided by the number of participants",
        """
def feddyn_server(theta, h, ends, alpha, num_clients):
    h = h - alpha * (ends.mean(0) - theta)
    return ends.mean(0) - h / alpha, h
""",
    ),
    (
        "feddyn_server",
        "the mean of the models is divided by the number of all clients",
        """
def feddyn_server(theta, h, ends, alpha, num_clients):
    h = h - alpha / num_clients * (ends - theta).sum(0)
    return ends.sum(0) / num_clients - h / alpha, h
""",
    ),
    (
        "feddyn_server",
        "uses the old h for theta",
        """
def feddyn_server(theta, h, ends, alpha, num_clients):
    new = ends.mean(0) - h / alpha
    return new, h - alpha / num_clients * (ends - theta).sum(0)
""",
    ),
    (
        "feddyn_server",
        "h is computed from the new theta",
        """
def feddyn_server(theta, h, ends, alpha, num_clients):
    theta = ends.mean(0)
    h = h - alpha / num_clients * (ends - theta).sum(0)
    return theta - h / alpha, h
""",
    ),
    (
        "feddyn_server",
        "multiplies by alpha instead of dividing",
        """
def feddyn_server(theta, h, ends, alpha, num_clients):
    h = h - alpha / num_clients * (ends - theta).sum(0)
    return ends.mean(0) - alpha * h, h
""",
    ),
    (
        "feddyn_server",
        "changes h in place",
        """
def feddyn_server(theta, h, ends, alpha, num_clients):
    h -= alpha / num_clients * (ends - theta).sum(0)
    return ends.mean(0) - h / alpha, h
""",
    ),
    (
        "feddyn",
        "all clients forget in every round",
        """
def feddyn(gradients, theta, alpha, steps, lr, schedule):
    h, models, ends = torch.zeros_like(theta), [theta], []
    for chosen in schedule:
        g = torch.zeros(len(gradients), len(theta), dtype=theta.dtype)
        arrived = []
        for i in chosen:
            w, g[i] = feddyn_client(gradients[i], theta, g[i], alpha, steps, lr)
            arrived.append(w)
        ends.append(torch.stack(arrived))
        theta, h = feddyn_server(theta, h, ends[-1], alpha, len(gradients))
        models.append(theta)
    return torch.stack(models), ends, g, h
""",
    ),
    (
        "feddyn",
        "a client starts where the one before has ended",
        """
def feddyn(gradients, theta, alpha, steps, lr, schedule):
    g, h, models, ends = torch.zeros(len(gradients), len(theta)).to(theta), torch.zeros_like(theta), [theta], []
    for chosen in schedule:
        arrived = []
        for i in chosen:
            theta, g[i] = feddyn_client(gradients[i], theta, g[i], alpha, steps, lr)
            arrived.append(theta)
        ends.append(torch.stack(arrived))
        theta, h = feddyn_server(theta, h, ends[-1], alpha, len(gradients))
        models.append(theta)
    return torch.stack(models), ends, g, h
""",
    ),
    (
        "feddyn",
        "one memory for all clients",
        """
def feddyn(gradients, theta, alpha, steps, lr, schedule):
    g, h, models, ends = torch.zeros_like(theta), torch.zeros_like(theta), [theta], []
    for chosen in schedule:
        arrived = []
        for i in chosen:
            w, g = feddyn_client(gradients[i], theta, g, alpha, steps, lr)
            arrived.append(w)
        ends.append(torch.stack(arrived))
        theta, h = feddyn_server(theta, h, ends[-1], alpha, len(gradients))
        models.append(theta)
    return torch.stack(models), ends, g.repeat(len(gradients), 1), h
""",
    ),
    (
        "feddyn",
        "tells the server the number of participants as the number of clients",
        """
def feddyn(gradients, theta, alpha, steps, lr, schedule):
    g, h, models, ends = torch.zeros(len(gradients), len(theta)).to(theta), torch.zeros_like(theta), [theta], []
    for chosen in schedule:
        arrived = []
        for i in chosen:
            w, g[i] = feddyn_client(gradients[i], theta, g[i], alpha, steps, lr)
            arrived.append(w)
        ends.append(torch.stack(arrived))
        theta, h = feddyn_server(theta, h, ends[-1], alpha, len(chosen))
        models.append(theta)
    return torch.stack(models), ends, g, h
""",
    ),
    (
        "feddyn",
        "memories by place among the participants instead of by client",
        """
def feddyn(gradients, theta, alpha, steps, lr, schedule):
    g, h, models, ends = torch.zeros(len(gradients), len(theta)).to(theta), torch.zeros_like(theta), [theta], []
    for chosen in schedule:
        arrived = []
        for k, i in enumerate(chosen):
            w, g[k] = feddyn_client(gradients[i], theta, g[k], alpha, steps, lr)
            arrived.append(w)
        ends.append(torch.stack(arrived))
        theta, h = feddyn_server(theta, h, ends[-1], alpha, len(gradients))
        models.append(theta)
    return torch.stack(models), ends, g, h
""",
    ),
    (
        "feddyn",
        "the new memories are thrown away",
        """
def feddyn(gradients, theta, alpha, steps, lr, schedule):
    g, h, models, ends = torch.zeros(len(gradients), len(theta)).to(theta), torch.zeros_like(theta), [theta], []
    for chosen in schedule:
        ends.append(
            torch.stack([feddyn_client(gradients[i], theta, g[i], alpha, steps, lr)[0] for i in chosen])
        )
        theta, h = feddyn_server(theta, h, ends[-1], alpha, len(gradients))
        models.append(theta)
    return torch.stack(models), ends, g, h
""",
    ),
]
