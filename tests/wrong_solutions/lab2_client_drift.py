"""Wrong solutions of lab 2 that must lose their exercise's points, as what `test_labs.changed` takes."""

WRONG = {
    "drift": [
        ("distances to the received model instead of to the centre", "ends - ends.mean(0)", "ends - start"),
        ("the mean cosine counts every client with itself", "cosines[i, j]", "cosines"),
        ("cosines of the models instead of the updates", "updates = ends - start", "updates = ends"),
        ("root of the mean square instead of the mean distance", "norm(dim=1).mean()", "square().sum(1).mean().sqrt()"),
        ("nan for a client that has not moved", "torch.where(norms > 0, norms, 1.0)", "norms"),
        ("cosines of neighbours in the list only", "cosines[i, j]", "cosines.diagonal(1)"),
    ],
    "fedprox_client": [
        ("forgets the proximal term", " + mu * (w - received)", ""),
        ("pushes away from the received model", "gradient(w) +", "gradient(w) -"),
        ("half of the proximal term", "(w) + mu", "(w) + mu / 2"),
        (
            "changes the received model in place, so that the proximal term is always 0",
            "received.clone()",
            "received",
            "w = w - lr",
            "w -= lr",
        ),
        (
            "the gradient of the proximal term has the norm mu: it is not squared",
            "mu * (w - received)",
            "mu * torch.nn.functional.normalize(w - received, dim=0)",
        ),
        (
            "pulled to the model of the step before instead of the received one",
            "w = received.clone()",
            "w = before = received.clone()",
            "w = w - lr * (gradient(w) + mu * (w - received))",
            "w, before = w - lr * (gradient(w) + mu * (w - before)), w",
        ),
    ],
    "fedprox_limit": [
        ("forgets mu inside rho", "lr * (a + mu)", "lr * a"),
        ("forgets that the local problem's minimum is not the client's", "a / (a + mu) * ", ""),
        ("the formula for completely solved local problems", " * (1 - rho)", ""),
        ("one curvature for all coordinates of a client", "rho = (1", "a = a.mean(1, keepdim=True)\nrho = (1"),
        ("the shares of all coordinates are added up", "share.sum(0)", "share.sum()"),
    ],
    "feddyn_client": [
        ("adds the memory instead of subtracting it", "gradient(w) -", "gradient(w) +"),
        ("the memory grows with the wrong sign", "w, g -", "w, g +"),
        (
            "the memory changes after every step",
            "(gradient(w) - g + alpha * (w - received))",
            """
(gradient(w) - g + alpha * (w - received))
    g = g - alpha * (w - received)
""",
            "w, g - alpha * (w - received)",
            "w, g",
        ),
        ("the memory is replaced instead of changed", "w, g - ", "w, -"),
        (
            "the memory is the gradient at the end, which is equal only if the local problem is solved",
            "g - alpha * (w - received)",
            "gradient(w)",
        ),
        ("the new memory has no alpha", "- alpha *", "-"),
        (
            "changes the memory in place",
            "return w, g - alpha * (w - received)",
            "g -= alpha * (w - received)\nreturn w, g",
        ),
    ],
    "feddyn_server": [
        (
            "h is divided by the number of participants",
            "/ num_clients * (ends - theta).sum(0)",
            "* (ends.mean(0) - theta)",
        ),
        ("the mean of the models is divided by the number of all clients", "ends.mean(0)", "ends.sum(0) / num_clients"),
        ("uses the old h for theta", "h = h - alpha", "old, h = h, h - alpha", "- h / alpha", "- old / alpha"),
        ("h is computed from the new theta", "h = h -", "theta = ends.mean(0)\nh = h -"),
        ("multiplies by alpha instead of dividing", "h / alpha", "alpha * h"),
        ("changes h in place", "h = h - alpha", "h -= alpha"),
    ],
    "feddyn": [
        (
            "all clients forget in every round",
            "for chosen in schedule:",
            "for chosen in schedule:\n    g = torch.zeros_like(g)",
        ),
        (
            "a client starts where the one before has ended",
            "arrived, memories = zip(*(feddyn_client(gradients[i], theta, g[i], alpha, steps, lr) for i in chosen))",
            """
arrived, memories = [], []
    for i in chosen:
        theta, memory = feddyn_client(gradients[i], theta, g[i], alpha, steps, lr)
        arrived.append(theta)
        memories.append(memory)
""",
        ),
        ("one memory for all clients", "g[list(chosen)] = torch.stack(memories)", "g[:] = memories[-1]"),
        (
            "tells the server the number of participants as the number of clients",
            "alpha, len(gradients))",
            "alpha, len(chosen))",
        ),
        (
            "memories by place among the participants instead of by client",
            "g[i], alpha, steps, lr) for i in chosen))",
            "g[k], alpha, steps, lr) for k, i in enumerate(chosen)))",
            "g[list(chosen)]",
            "g[: len(chosen)]",
        ),
        ("the new memories are thrown away", "g[list(chosen)] = torch.stack(memories)", "pass"),
    ],
}
