"""A network as pure functions of its parameters theta."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedlib.base.errors import choose, require
from fedlib.data.batch import StoredImages
from fedlib.models.fused import FusedNetwork, calls
from fedlib.models.parts import BatchNorm2d

STEPS = ("auto", "torch", "fused")


class Model:
    """theta is a flat dict: trainable parameters and batch-norm running statistics, by name.

    Names start with "extractor." or "head."; `trainable` and `running` say which are which. `theta0` are the initial
    values. Nothing here keeps state: every function takes theta and returns new tensors.

    step: what computes passes through the network, "torch" or, where `fedlib.models.fused` knows all layers and the
    numbers are float32 on a CPU, one client at a time, compiled code; "auto" uses that where it can and it pays,
    "fused" wherever it can (`insist`). It decides no more than rounding. A model by itself uses "torch", one of a run
    what `fedlib.engine.setup.set_up` says.
    """

    def __init__(self, module: nn.Module):
        self.module = module
        self.norms = {name: layer for name, layer in module.named_modules() if isinstance(layer, BatchNorm2d)}
        self.trainable = tuple(name for name, _ in module.named_parameters())
        buffers = {k: v for k, v in module.named_buffers() if k.rpartition(".")[0] in self.norms}  # no index tables
        self.running = tuple(buffers)
        self.theta0 = {k: v.detach().clone() for k, v in (*module.named_parameters(), *buffers.items())}
        self.stacked = False  # True inside the vmap backend
        self.autocast: torch.dtype | None = None  # type of the forward pass, where it is not theta's
        self.remake: Callable = _unknown_origin  # number -> a module with other initial values
        self.make_sibling: Callable = _unknown_origin  # name -> another backbone for the same task
        self.siblings: dict[str, Model] = {}
        self.step, self.fused = "torch", FusedNetwork.of(module)
        self._slots = {name: _slot(module, name) for name in self.theta0}

    def to(self, device: torch.device, dtype: torch.dtype) -> Model:
        """This model on another device or with another floating-point type."""
        moved = Model(copy.deepcopy(self.module).to(device=device, dtype=dtype))
        moved.autocast, moved.remake, moved.make_sibling = self.autocast, self.remake, self.make_sibling
        moved.step = self.step
        return moved

    def insist(self, step: str) -> None:
        """Set `step`. Raises BadValue for "fused" where compiled code cannot be used for this model."""
        self.step = choose("step", step, STEPS)
        require(step != "fused" or self.step_used == "fused", "step", step, f"auto or torch: {self._unfused()}")

    @property
    def step_used(self) -> str:
        """What computes training steps on this model: "torch", "fused", or "mixed" where it depends on the batch."""
        if self.step == "torch" or self._unfused():
            return "torch"
        return "fused" if self.step == "fused" or self.fused.always_pays else "mixed"

    def _unfused(self) -> str:
        """Why compiled code cannot be used for this model; "" if it can."""
        like = self.theta0["head.bias"]
        if self.fused is None:
            return "the network has other layers than compiled steps know"
        if self.stacked or self.autocast is not None or like.dtype != torch.float32 or like.device.type != "cpu":
            return "compiled steps are for float32 on a CPU, one client at a time (backend serial or process)"
        return "" if self.fused.available else "no compiler was found, or it failed"

    def for_stack(self) -> Model:
        """This model for use under torch.func.vmap."""
        twin = copy.copy(self)
        twin.stacked = True
        return twin

    @property
    def norm_names(self) -> tuple[str, ...]:
        """Scale, shift and running statistics of all batch-norm layers."""
        return tuple(name for name in self.theta0 if name.rpartition(".")[0] in self.norms)

    def independent(self, number: int) -> dict:
        """Initial values drawn independently of theta0, as a function of the run's seed and `number` (1, 2, ...)."""
        drawn = Model(self.remake(number)).theta0
        return {name: value.to(self.theta0[name]) for name, value in drawn.items()}

    def sibling(self, name: str) -> Model:
        """Another backbone for the same images and classes, drawn from the same seed, on the same device.
        Built once."""
        if name not in self.siblings:
            like = next(iter(self.theta0.values()))
            self.siblings[name] = self.make_sibling(name).to(like.device, like.dtype)
            self.siblings[name].autocast, self.siblings[name].step = self.autocast, self.step
        return self.siblings[name].for_stack() if self.stacked else self.siblings[name]

    @property
    def num_parameters(self) -> dict[str, int]:
        """Trainable parameters: nu_f of the extractor, nu_c of the head, nu_m of both."""
        size = {name: self.theta0[name].numel() for name in self.trainable}
        head = sum(count for name, count in size.items() if name.startswith("head."))
        return {"extractor": sum(size.values()) - head, "head": head, "model": sum(size.values())}

    # forward passes ------------------------------------------------------------------------------------------------

    def logits(self, theta: dict, x: Tensor) -> Tensor:
        """Logits [B, C] in evaluation mode; x: standardised images [B, c, h, w]."""
        return self._evaluated(theta, x)

    def scores(self, theta: dict, batch) -> Tensor:
        """`logits` of a minibatch, whose images compiled code reads as they are stored."""
        return self.logits(theta, batch.images if self._fuses(theta, batch.images) else batch.x)

    def logits_of_many(self, theta: dict, changed: dict, x: Tensor) -> Tensor:
        """Logits [m, B, C] of m models with the entries `changed`, stacked [m, ...], and theta's for the rest:
        one after the other in compiled code, with PyTorch as one program."""
        alone = [{**theta, **dict(zip(changed, values))} for values in zip(*changed.values())]
        if self._fuses(alone[0], x):
            return torch.stack([self.logits(one, x) for one in alone])
        twin = self.for_stack()
        return torch.func.vmap(lambda one: twin.logits({**theta, **one}, x))(changed)

    def features(self, theta: dict, x: Tensor) -> Tensor:
        """What the extractor makes of images, [B, d], in evaluation mode."""
        return self._evaluated(theta, x, self.module.extractor)

    def classify(self, theta: dict, z: Tensor) -> Tensor:
        """Logits [B, C] of feature vectors z [B, d]; theta may be the head alone."""
        return functional.linear(z, theta["head.weight"], theta["head.bias"])

    def layer_outputs(self, theta: dict, x: Tensor) -> dict[str, Tensor]:
        """Outputs of every convolution and linear layer in evaluation mode, by name, in order of depth."""
        layers = {name: one for name, one in self.module.named_modules() if isinstance(one, nn.Conv2d | nn.Linear)}
        return self._watch(theta, x, layers, lambda inputs, output: output)

    def norm_inputs(self, theta: dict, x: Tensor) -> dict[str, Tensor]:
        """Inputs of every batch-norm layer in evaluation mode, by name."""
        return self._watch(theta, x, self.norms, lambda inputs, output: inputs[0])

    def loss(self, theta: dict, batch, train: Iterable[str] | None = None) -> tuple[Tensor, dict]:
        """Mean cross-entropy of a minibatch in training mode, and the new running statistics.

        Batch-norm layers none of whose parameters are in `train` (default: all trainable) run in evaluation mode.
        """
        logits, stats = self._train_forward(theta, batch, self.trainable if train is None else train)
        return batch.mean(functional.cross_entropy(logits, batch.y, reduction="none")), stats

    def training_features(self, theta: dict, batch, train: Iterable[str] | None = None) -> tuple[Tensor, dict]:
        """The extractor's output [B, d] in training mode, and the new running statistics; `train` as in `loss`."""
        return self._train_forward(theta, batch, self.trainable if train is None else train, self.module.extractor)

    def batch_stats(self, theta: dict, batch) -> dict:
        """Mean and unbiased variance of every batch-norm input on this batch alone,
        named like the running statistics."""
        momenta = {layer: layer.momentum for layer in self.norms.values()}
        for layer in momenta:
            layer.momentum = 1.0
        try:
            return self._train_forward(theta, batch, self.trainable)[1]
        finally:
            for layer, momentum in momenta.items():
                layer.momentum = momentum

    def activations(self, shape: tuple[int, int, int]) -> int:
        """Numbers that the forward pass of one image of that shape produces, over all layers:
        what a training step keeps."""
        layers = {name: layer for name, layer in self.module.named_modules() if not list(layer.children())}
        like = self.theta0["head.bias"]
        x = torch.zeros(1, *shape, device=like.device, dtype=like.dtype)
        return sum(self._watch(self.theta0, x, layers, lambda inputs, output: output.numel()).values())

    # training steps ------------------------------------------------------------------------------------------------

    def sgd_step(
        self,
        theta: dict,
        batch,
        lr: float,
        train: Iterable[str] | None = None,
        loss: Callable | None = None,
        differentiate: Callable | None = None,
        tie: tuple[float, dict] | None = None,
    ) -> dict:
        """theta - lr * gradient of the minibatch loss, for the parameters named in `train` (default: all trainable).

        loss(theta, batch, train) = (scalar, new running statistics); default: `loss`, the mean cross-entropy.
        tie = (strength, anchor) adds strength/2 |theta - anchor|^2 over these parameters to the loss; no record enters
        it, so that DP by record neither clips it nor adds noise to it.
        differentiate(model, loss, theta, part, batch) = (gradient, new running statistics); a client's data say which
        (`fedlib.algorithms.api.ClientData.differentiate`), default: `Model.differentiate`.
        """
        part = {name: theta[name] for name in (self.trainable if train is None else train)}
        loss, differentiate = loss or self.loss, differentiate or Model.differentiate
        if part and differentiate is Model.differentiate and self._knows(loss, theta, part, batch):
            calls["fused"] += 1
            new = self.fused.entropy_step(theta, batch.images, batch.y, part, self._active(part), lr)
        else:
            grads, stats = differentiate(self, loss, theta, part, batch)
            new = {**stats, **self.descended(part, grads, lr)}
        return {**theta, **new, **(self.pulled(new, part, tie, lr) if tie else {})}

    def differentiate(self, loss: Callable, theta: dict, part: dict, batch) -> tuple[dict, dict]:
        """Gradient of loss(theta, batch, part) with respect to the parameters in `part`, and new running statistics."""
        if self._knows(loss, theta, part, batch):
            calls["fused"] += 1
            return self.fused.entropy_gradient(theta, batch.images, batch.y, part, self._active(part))
        return self.gradient(lambda p: loss({**theta, **p}, batch, part), part)

    def clipped_gradient(self, loss: Callable, theta: dict, part: dict, batch, clip: float) -> dict | None:
        """Sum over a batch's records of the gradients of their own losses, each scaled to a norm of at most `clip`;
        None where compiled code does not compute it."""
        if self.norms or not self._knows(loss, theta, part, batch, always=True):  # what PyTorch does here is slow
            return None
        calls["fused"] += 1
        return self.fused.clipped_entropy_gradient(theta, batch.images, batch.y, part, clip)

    def _knows(self, loss: Callable, theta: dict, part: dict, batch, always: bool = False) -> bool:
        """Whether compiled code computes the gradient of this loss; `always` as in `_fuses`."""
        usual = loss == self.loss and batch.mask is None and part.keys() <= self.theta0.keys()
        return usual and self._fuses(theta, batch.images, always)

    def descended(self, params: dict, grads: dict, lr: float) -> dict:
        """params - lr * grads."""
        if self.stacked:
            return {name: params[name] - lr * grads[name] for name in params}
        return {name: params[name].sub(grads[name], alpha=lr) for name in params}

    def pulled(self, new: dict, part: dict, tie: tuple[float, dict], lr: float) -> dict:
        """The parameters `new` of a step from `part` that left a tie out, with it."""
        strength, anchor = tie
        away = self.descended(part, anchor, 1)
        return self.descended({name: new[name] for name in part}, away, lr * strength)

    def gradient(self, fn: Callable[[dict], tuple[Tensor, dict]], params: dict) -> tuple[dict, dict]:
        """Gradient of fn(params) = (scalar, aux) with respect to params, and aux.
        One client at a time autograd is faster."""
        if self.stacked:
            return torch.func.grad(fn, has_aux=True)(params)
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        with torch.enable_grad():
            value, aux = fn(leaves)
        grads = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)  # 0 where fn does not depend
        return dict(zip(leaves, grads)), {name: leaf.detach() for name, leaf in aux.items()}

    # -----------------------------------------------------------------------------------------------------------------

    def _active(self, train: Iterable[str]) -> dict[str, BatchNorm2d]:
        """Batch-norm layers that are in training mode while these parameters are trained."""
        return {
            name: layer for name, layer in self.norms.items() if f"{name}.weight" in train or f"{name}.bias" in train
        }

    def _fuses(self, theta: dict, x: Tensor | StoredImages, always: bool = False) -> bool:
        """Whether compiled code computes this pass; always: even if PyTorch is quicker with batches of this size."""
        usual = self.step in ("auto", "fused") and not self.stacked and self.autocast is None
        if not usual or self.fused is None or not self.fused.accepts(theta, x):
            return False
        return always or self.step == "fused" or self.fused.pays(len(x))

    def _evaluated(self, theta: dict, x: Tensor | StoredImages, part: nn.Module | None = None) -> Tensor:
        self._mode(training=False)
        if self._fuses(theta, x):
            leaves = (theta[name] for name in self.theta0)  # theta may hold more, for a method's own `predict`
            if not (torch.is_grad_enabled() and any(leaf.requires_grad for leaf in leaves)):
                return self.fused.evaluated(theta, x, part is not None)
        return self._forward(theta, x, part)

    def _forward(self, theta: dict, x: Tensor, part: nn.Module | None = None) -> Tensor:
        """The module's (or a part's) output with theta's tensors in the places of its own:
        functional_call at a tenth of its cost."""
        module = self.module if part is None else part
        own = {name: table[key] for name, (table, key) in self._slots.items()}
        for name, (table, key) in self._slots.items():
            table[key] = theta[name]
        try:
            if self.autocast is None:
                return module(x)
            with torch.autocast(x.device.type, self.autocast):
                return module(x).to(x.dtype)
        finally:
            for name, (table, key) in self._slots.items():
                table[key] = own[name]

    def _train_forward(
        self, theta: dict, batch, train: Iterable[str], part: nn.Module | None = None
    ) -> tuple[Tensor, dict]:
        active = self._active(train)
        fuses = self._fuses(theta, batch.images) and (batch.mask is None or bool(batch.mask.any()))
        calls["fused" if fuses else "torch"] += torch.is_grad_enabled()
        if fuses:
            return self.fused.trained(theta, batch.images, batch.mask, active, part is not None)
        self._mode(training=True)
        for name, layer in self.norms.items():
            layer.mask, layer.training = batch.mask, name in active
        output = self._forward(theta, batch.x, part)
        stats = {}
        for name, layer in active.items():
            stats[f"{name}.running_mean"], stats[f"{name}.running_var"] = layer.new_stats
        for layer in self.norms.values():
            layer.mask, layer.new_stats, layer.training = None, None, True
        return output, stats

    def _watch(self, theta: dict, x: Tensor, layers: dict[str, nn.Module], pick: Callable) -> dict[str, Tensor]:
        seen: dict[str, Tensor] = {}

        def watcher(name: str) -> Callable:
            return lambda _, inputs, output: seen.__setitem__(name, pick(inputs, output))

        hooks = [layer.register_forward_hook(watcher(name)) for name, layer in layers.items()]
        self._mode(training=False)
        try:
            self._forward(theta, x)  # layer by layer
        finally:
            for hook in hooks:
                hook.remove()
        return seen

    def _mode(self, training: bool) -> None:
        if self.module.training != training:
            self.module.train(training)


def _unknown_origin(*_, **__):
    raise ValueError("this model was not made by fedlib.models.build, so that nothing like it can be made")


def _slot(module: nn.Module, name: str) -> tuple[dict, str]:
    """Where a module keeps the tensor called `name`: (the table of its owner, key)."""
    path, _, key = name.rpartition(".")
    owner = module.get_submodule(path)
    return (owner._parameters if key in owner._parameters else owner._buffers), key
