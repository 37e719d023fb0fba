"""Wrong solutions of lab 3 that must lose their exercise's points, as what `test_labs.changed` takes."""

WRONG = {
    "split_state": [
        ('looks for "head" anywhere in the name', "name.startswith(prefix)", '("head" in name) == (prefix == "head.")'),
        ("no copies", ".detach().clone()", ""),
        ("cuts the prefix off the names", "{name: value", "{name.removeprefix(prefix): value"),
        (
            "the last two entries are the head",
            "name.startswith(prefix)",
            '(name in list(state)[-2:]) == (prefix == "head.")',
        ),
        ("the wrong way round", "tuple(parts)", "tuple(parts[::-1])"),
    ],
    "average_parts": [
        ("unweighted mean", "float(n / total)", "1 / len(parts)"),
        ("weights are not divided by their sum", "float(n / total)", "float(n)"),
        ("weighted, and divided by the number of clients as well", "float(n / total)", "float(n / total) / len(parts)"),
        (
            "adds up in the first client's tensors",
            """
total = float(sum(num_samples))
mean = parts[0]
for name in mean:
    mean[name] *= float(num_samples[0]) / total
    for n, part in zip(num_samples[1:], parts[1:]):
        mean[name] += float(n) / total * part[name]
return mean
""",
        ),
        (
            "only tensors that have axes (a scalar is forgotten)",
            "for name in parts[0]}",
            "for name in parts[0] if parts[0][name].ndim}",
        ),
    ],
    "receive": [
        ("strict=False swallows unknown names", "model.load_state_dict(message, strict=False)"),
        (
            "models share the message's memory",
            """
places = {**dict(model.named_parameters()), **dict(model.named_buffers())}
for name, value in message.items():
    places[name].data = value
""",
        ),
        (
            "parameters only, running statistics are forgotten",
            """
names = set(model.state_dict())
assert set(message) <= names
with torch.no_grad():
    for name, value in model.named_parameters():
        if name in message:
            value.copy_(message[name])
""",
        ),
        (
            "writes into a copy of the model",
            """
model = copy.deepcopy(model)
model.load_state_dict({**model.state_dict(), **message})
""",
        ),
        (
            "sets everything that was not received to zero",
            """
state = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
model.load_state_dict({**state, **message})
""",
        ),
    ],
    "train_part": [
        ("batch norm of the frozen extractor stays in training mode", "model.eval()", "model.train()"),
        ("everything in evaluation mode, batch norm learns no statistics", "trained.train()", "trained.eval()"),
        (
            "forgets zero_grad: gradients add up",
            "model.eval()",
            "model.zero_grad()\nmodel.eval()",
            "optimiser.zero_grad()",
            "pass",
        ),
        (
            "the same minibatches in every epoch",
            """
for _ in range(epochs):
    for rows in batches(len(x), batch_size, generator):
""",
            """
dealt = batches(len(x), batch_size, generator)
for _ in range(epochs):
    for rows in dealt:
""",
        ),
        ("one step on all images in every epoch", "batches(len(x), batch_size, generator)", "[slice(None)]"),
        (
            "freezes with requires_grad and does not undo it",
            "optimiser = torch",
            """
for name, parameter in model.named_parameters():
    parameter.requires_grad = part == "all" or name.startswith(part)
optimiser = torch
""",
        ),
        ("steps uphill", "lr=lr", "lr=lr, maximize=True"),
        ("trains everything, whatever the part", 'model if part == "all" else getattr(model, part)', "model"),
    ],
    "client_update": [
        (
            "FedRep trains the extractor first",
            '"head", max(1, epochs - 1)',
            '"extractor", 1',
            '"extractor", 1',
            '"head", max(1, epochs - 1)',
        ),
        ("FedRep gives all epochs to the head", "max(1, epochs - 1)", "epochs"),
        ("FedRep with one epoch never trains the head", "max(1, epochs - 1)", "epochs - 1"),
        (
            "the upload is not a copy",
            "model.state_dict()[name].detach().clone() for",
            "value for name, value in model.state_dict().items() if",
        ),
        (
            "uploads the head as well",
            "model.state_dict()[name].detach().clone() for name in message",
            "value.detach().clone() for name, value in model.state_dict().items()",
        ),
        ("forgets to receive the message", "receive(model, message)\n", ""),
        (
            "always uploads the extractor, whatever the message is",
            "{name: model.state_dict()[name].detach().clone() for name in message}",
            "split_state(model.state_dict())[0] if message else {}",
        ),
    ],
    "batch_norm_names": [
        ('looks for "bn" in the name', 'return {name for name in model.state_dict() if "bn" in name}'),
        ("running statistics only", "return {name for name, _ in model.named_buffers()}"),
        (
            "a beginning without the dot: extractor.1 takes extractor.12 along",
            '{f"{name}.{entry}" for entry in layer.state_dict()}',
            "{entry for entry in model.state_dict() if entry.startswith(name)}",
        ),
        ("forgets nn.BatchNorm2d", "(nn.BatchNorm1d, nn.BatchNorm2d)", "nn.BatchNorm1d"),
        ("the counter is forgotten", "layer.state_dict()", 'layer.state_dict() if "num" not in entry'),
        (
            "always five names, also where a layer has no scale or no statistics",
            "layer.state_dict()",
            '("weight", "bias", "running_mean", "running_var", "num_batches_tracked")',
        ),
    ],
    "bytes_per_round": [
        ("counts elements, not bytes", "return 2 * participants * sum(state[name].numel() for name in shared)"),
        ("one direction only", "2 * participants", "participants"),
        ("four bytes for everything", "return 2 * participants * 4 * sum(state[name].numel() for name in shared)"),
        ("the download is counted once for all clients", "2 * participants", "(1 + participants)"),
        (
            "the whole state travels",
            """
if not shared:
    return 0
return 2 * participants * sum(value.numel() * value.element_size() for value in state.values())
""",
        ),
    ],
}
