"""Wrong solutions of lab 2 that must lose their exercise's points, as what `test_labs.changed` takes."""

WRONG = {
    "drift": [
        ("distances to the received model instead of to the centre", "ends - ends.mean(0)", "ends - start"),
        ("the mean cosine counts every client with itself", "cosines[i, j]", "cosines"),
        ("root of the mean square instead of the mean distance", "norm(dim=1).mean()", "square().sum(1).mean().sqrt()"),
        ("nan for a client that has not moved", "torch.where(norms > 0, norms, 1.0)", "norms"),
        ("cosines of neighbours in the list only", "cosines[i, j]", "cosines.diagonal(1)"),
    ],
    "fedprox_client": [
        ("forgets the proximal term", " + mu * (w - received)", ""),
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
        ("the formula for completely solved local problems", " * (1 - rho)", ""),
        ("one curvature for all coordinates of a client", "rho = (1", "a = a.mean(1, keepdim=True)\nrho = (1"),
        ("the shares of all coordinates are added up", "share.sum(0)", "share.sum()"),
    ],
    "feddyn_client": [
        ("adds the memory instead of subtracting it", "gradient(w) -", "gradient(w) +"),
        ("the memory grows with the wrong sign", "w, g -", "w, g +"),
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
    ],
}
