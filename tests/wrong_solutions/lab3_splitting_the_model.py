"""Plausible mistakes in lab 3: (exercise, what is wrong, source); each must lose the exercise's points."""

WRONG = [
    (
        "split_state",
        'looks for "head" anywhere in the name',
        """
def split_state(state):
    head = {name: value.detach().clone() for name, value in state.items() if "head" in name}
    extractor = {name: value.detach().clone() for name, value in state.items() if name not in head}
    return extractor, head
""",
    ),
    (
        "split_state",
        "no copies",
        """
def split_state(state):
    extractor = {name: value for name, value in state.items() if name.startswith("extractor.")}
    head = {name: value for name, value in state.items() if name.startswith("head.")}
    return extractor, head
""",
    ),
    (
        "split_state",
        "cuts the prefix off the names",
        """
def split_state(state):
    extractor = {n[len("extractor.") :]: v.clone() for n, v in state.items() if n.startswith("extractor.")}
    head = {n[len("head.") :]: v.clone() for n, v in state.items() if n.startswith("head.")}
    return extractor, head
""",
    ),
    (
        "split_state",
        "the last two entries are the head",
        """
def split_state(state):
    names = list(state)
    extractor = {name: state[name].detach().clone() for name in names[:-2]}
    return extractor, {name: state[name].detach().clone() for name in names[-2:]}
""",
    ),
    (
        "split_state",
        "the wrong way round",
        """
def split_state(state):
    extractor = {name: value.detach().clone() for name, value in state.items() if name.startswith("extractor.")}
    head = {name: value.detach().clone() for name, value in state.items() if name.startswith("head.")}
    return head, extractor
""",
    ),
    (
        "average_parts",
        "unweighted mean",
        """
def average_parts(parts, num_samples):
    return {name: sum(part[name] for part in parts) / len(parts) for name in parts[0]}
""",
    ),
    (
        "average_parts",
        "weights are not divided by their sum",
        """
def average_parts(parts, num_samples):
    return {name: sum(float(n) * part[name] for n, part in zip(num_samples, parts)) for name in parts[0]}
""",
    ),
    (
        "average_parts",
        "weighted, and divided by the number of clients as well",
        """
def average_parts(parts, num_samples):
    weights = [float(n) / float(sum(num_samples)) for n in num_samples]
    return {name: sum(w * p[name] for w, p in zip(weights, parts)) / len(parts) for name in parts[0]}
""",
    ),
    (
        "average_parts",
        "adds up in the first client's tensors",
        """
def average_parts(parts, num_samples):
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
        "average_parts",
        "only tensors that have axes (a scalar is forgotten)",
        """
def average_parts(parts, num_samples):
    weights = [float(n) / float(sum(num_samples)) for n in num_samples]
    return {k: sum(w * p[k] for w, p in zip(weights, parts)) for k in parts[0] if parts[0][k].ndim}
""",
    ),
    (
        "receive",
        "strict=False swallows unknown names",
        """
def receive(model, message):
    model.load_state_dict(message, strict=False)
""",
    ),
    (
        "receive",
        "models share the message's memory",
        """
def receive(model, message):
    places = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, value in message.items():
        places[name].data = value
""",
    ),
    (
        "receive",
        "parameters only, running statistics are forgotten",
        """
def receive(model, message):
    names = set(model.state_dict())
    assert set(message) <= names
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name in message:
                value.copy_(message[name])
""",
    ),
    (
        "receive",
        "writes into a copy of the model",
        """
def receive(model, message):
    model = copy.deepcopy(model)
    model.load_state_dict({**model.state_dict(), **message})
""",
    ),
    (
        "receive",
        "sets everything that was not received to zero",
        """
def receive(model, message):
    state = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    model.load_state_dict({**state, **message})
""",
    ),
    (
        "train_part",
        "batch norm of the frozen extractor stays in training mode",
        """
def train_part(model, x, y, part, epochs, lr, batch_size, generator):
    model.train()
    trained = model if part == "all" else getattr(model, part)
    optimiser = torch.optim.SGD(trained.parameters(), lr=lr)
    for _ in range(epochs):
        for rows in batches(len(x), batch_size, generator):
            optimiser.zero_grad()
            functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
""",
    ),
    (
        "train_part",
        "everything in evaluation mode, batch norm learns no statistics",
        """
def train_part(model, x, y, part, epochs, lr, batch_size, generator):
    model.eval()
    trained = model if part == "all" else getattr(model, part)
    optimiser = torch.optim.SGD(trained.parameters(), lr=lr)
    for _ in range(epochs):
        for rows in batches(len(x), batch_size, generator):
            optimiser.zero_grad()
            functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
""",
    ),
    (
        "train_part",
        "forgets zero_grad: gradients add up",
        """
def train_part(model, x, y, part, epochs, lr, batch_size, generator):
    model.train()
    if part != "all":
        (model.head if part == "extractor" else model.extractor).eval()
    model.zero_grad()
    trained = model if part == "all" else getattr(model, part)
    optimiser = torch.optim.SGD(trained.parameters(), lr=lr)
    for _ in range(epochs):
        for rows in batches(len(x), batch_size, generator):
            functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
""",
    ),
    (
        "train_part",
        "the same minibatches in every epoch",
        """
def train_part(model, x, y, part, epochs, lr, batch_size, generator):
    model.train()
    if part != "all":
        (model.head if part == "extractor" else model.extractor).eval()
    trained = model if part == "all" else getattr(model, part)
    optimiser = torch.optim.SGD(trained.parameters(), lr=lr)
    dealt = batches(len(x), batch_size, generator)
    for _ in range(epochs):
        for rows in dealt:
            optimiser.zero_grad()
            functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
""",
    ),
    (
        "train_part",
        "one step on all images in every epoch",
        """
def train_part(model, x, y, part, epochs, lr, batch_size, generator):
    model.train()
    if part != "all":
        (model.head if part == "extractor" else model.extractor).eval()
    trained = model if part == "all" else getattr(model, part)
    optimiser = torch.optim.SGD(trained.parameters(), lr=lr)
    for _ in range(epochs):
        optimiser.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()
""",
    ),
    (
        "train_part",
        "freezes with requires_grad and does not undo it",
        """
def train_part(model, x, y, part, epochs, lr, batch_size, generator):
    model.train()
    if part != "all":
        (model.head if part == "extractor" else model.extractor).eval()
    for name, parameter in model.named_parameters():
        parameter.requires_grad = part == "all" or name.startswith(part)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=lr)
    for _ in range(epochs):
        for rows in batches(len(x), batch_size, generator):
            optimiser.zero_grad()
            functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
""",
    ),
    (
        "train_part",
        "steps uphill",
        """
def train_part(model, x, y, part, epochs, lr, batch_size, generator):
    model.train()
    if part != "all":
        (model.head if part == "extractor" else model.extractor).eval()
    trained = list((model if part == "all" else getattr(model, part)).parameters())
    for _ in range(epochs):
        for rows in batches(len(x), batch_size, generator):
            loss = functional.cross_entropy(model(x[rows]), y[rows])
            with torch.no_grad():
                for parameter, slope in zip(trained, torch.autograd.grad(loss, trained)):
                    parameter += lr * slope
""",
    ),
    (
        "train_part",
        "trains everything, whatever the part",
        """
def train_part(model, x, y, part, epochs, lr, batch_size, generator):
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(epochs):
        for rows in batches(len(x), batch_size, generator):
            optimiser.zero_grad()
            functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
""",
    ),
    (
        "client_update",
        "FedRep trains the extractor first",
        """
def client_update(model, message, x, y, method, epochs, lr, batch_size, generator):
    receive(model, message)
    if method == "fedrep":
        train_part(model, x, y, "extractor", 1, lr, batch_size, generator)
        train_part(model, x, y, "head", max(1, epochs - 1), lr, batch_size, generator)
    else:
        train_part(model, x, y, "all", epochs, lr, batch_size, generator)
    return {name: model.state_dict()[name].detach().clone() for name in message}
""",
    ),
    (
        "client_update",
        "FedRep gives all epochs to the head",
        """
def client_update(model, message, x, y, method, epochs, lr, batch_size, generator):
    receive(model, message)
    if method == "fedrep":
        train_part(model, x, y, "head", epochs, lr, batch_size, generator)
        train_part(model, x, y, "extractor", 1, lr, batch_size, generator)
    else:
        train_part(model, x, y, "all", epochs, lr, batch_size, generator)
    return {name: model.state_dict()[name].detach().clone() for name in message}
""",
    ),
    (
        "client_update",
        "FedRep with one epoch never trains the head",
        """
def client_update(model, message, x, y, method, epochs, lr, batch_size, generator):
    receive(model, message)
    if method == "fedrep":
        train_part(model, x, y, "head", epochs - 1, lr, batch_size, generator)
        train_part(model, x, y, "extractor", 1, lr, batch_size, generator)
    else:
        train_part(model, x, y, "all", epochs, lr, batch_size, generator)
    return {name: model.state_dict()[name].detach().clone() for name in message}
""",
    ),
    (
        "client_update",
        "the upload is not a copy",
        """
def client_update(model, message, x, y, method, epochs, lr, batch_size, generator):
    receive(model, message)
    if method == "fedrep":
        train_part(model, x, y, "head", max(1, epochs - 1), lr, batch_size, generator)
        train_part(model, x, y, "extractor", 1, lr, batch_size, generator)
    else:
        train_part(model, x, y, "all", epochs, lr, batch_size, generator)
    return {name: value for name, value in model.state_dict().items() if name in message}
""",
    ),
    (
        "client_update",
        "uploads the head as well",
        """
def client_update(model, message, x, y, method, epochs, lr, batch_size, generator):
    receive(model, message)
    if method == "fedrep":
        train_part(model, x, y, "head", max(1, epochs - 1), lr, batch_size, generator)
        train_part(model, x, y, "extractor", 1, lr, batch_size, generator)
    else:
        train_part(model, x, y, "all", epochs, lr, batch_size, generator)
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
""",
    ),
    (
        "client_update",
        "forgets to receive the message",
        """
def client_update(model, message, x, y, method, epochs, lr, batch_size, generator):
    if method == "fedrep":
        train_part(model, x, y, "head", max(1, epochs - 1), lr, batch_size, generator)
        train_part(model, x, y, "extractor", 1, lr, batch_size, generator)
    else:
        train_part(model, x, y, "all", epochs, lr, batch_size, generator)
    return {name: model.state_dict()[name].detach().clone() for name in message}
""",
    ),
    (
        "client_update",
        "always uploads the extractor, whatever the message is",
        """
def client_update(model, message, x, y, method, epochs, lr, batch_size, generator):
    receive(model, message)
    if method == "fedrep":
        train_part(model, x, y, "head", max(1, epochs - 1), lr, batch_size, generator)
        train_part(model, x, y, "extractor", 1, lr, batch_size, generator)
    else:
        train_part(model, x, y, "all", epochs, lr, batch_size, generator)
    return split_state(model.state_dict())[0] if message else {}
""",
    ),
    (
        "batch_norm_names",
        'looks for "bn" in the name',
        """
def batch_norm_names(model):
    return {name for name in model.state_dict() if "bn" in name}
""",
    ),
    (
        "batch_norm_names",
        "running statistics only",
        """
def batch_norm_names(model):
    return {name for name, _ in model.named_buffers()}
""",
    ),
    (
        "batch_norm_names",
        "a beginning without the dot: extractor.1 takes extractor.12 along",
        """
def batch_norm_names(model):
    found = set()
    for layer, module in model.named_modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            found |= {name for name in model.state_dict() if name.startswith(layer)}
    return found
""",
    ),
    (
        "batch_norm_names",
        "forgets nn.BatchNorm2d",
        """
def batch_norm_names(model):
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.BatchNorm1d)}
    return {f"{name}.{entry}" for name, module in layers.items() for entry in module.state_dict()}
""",
    ),
    (
        "batch_norm_names",
        "the counter is forgotten",
        """
def batch_norm_names(model):
    names, entries = set(model.state_dict()), ("weight", "bias", "running_mean", "running_var")
    layers = [n for n, m in model.named_modules() if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d))]
    return {f"{layer}.{entry}" for layer in layers for entry in entries} & names
""",
    ),
    (
        "batch_norm_names",
        "always five names, also where a layer has no scale or no statistics",
        """
def batch_norm_names(model):
    entries = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    layers = [n for n, m in model.named_modules() if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d))]
    return {f"{layer}.{entry}" for layer in layers for entry in entries}
""",
    ),
    (
        "bytes_per_round",
        "counts elements, not bytes",
        """
def bytes_per_round(state, shared, participants):
    return 2 * participants * sum(state[name].numel() for name in shared)
""",
    ),
    (
        "bytes_per_round",
        "one direction only",
        """
def bytes_per_round(state, shared, participants):
    return participants * sum(state[name].numel() * state[name].element_size() for name in shared)
""",
    ),
    (
        "bytes_per_round",
        "four bytes for everything",
        """
def bytes_per_round(state, shared, participants):
    return 2 * participants * 4 * sum(state[name].numel() for name in shared)
""",
    ),
    (
        "bytes_per_round",
        "the download is counted once for all clients",
        """
def bytes_per_round(state, shared, participants):
    return (1 + participants) * sum(state[name].numel() * state[name].element_size() for name in shared)
""",
    ),
    (
        "bytes_per_round",
        "the whole state travels",
        """
def bytes_per_round(state, shared, participants):
    if not shared:
        return 0
    return 2 * participants * sum(value.numel() * value.element_size() for value in state.values())
""",
    ),
]
