"""A network as pure functions of its parameters theta."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedlib.models.norm import BatchNorm2d


class Model:
    """theta is a flat dict: trainable parameters and batch-norm running statistics, by name.

    Names start with "extractor." or "head."; `trainable` and `running` say which are which. `theta0` are the initial
    values. Nothing here keeps state: every function takes theta and returns new tensors.
    """

    def __init__(self, module: nn.Module):
        self.module = module
        self.norms = {name: layer for name, layer in module.named_modules() if isinstance(layer, BatchNorm2d)}
        self.trainable = tuple(name for name, _ in module.named_parameters())
        buffers = {k: v for k, v in module.named_buffers() if k.rpartition(".")[0] in self.norms}  # no index tables
        self.running = tuple(buffers)
        self.theta0 = {k: v.detach().clone() for k, v in (*module.named_parameters(), *buffers.items())}
        self.stacked = False  # True inside the vmap backend

    def to(self, device: torch.device, dtype: torch.dtype) -> Model:
        """This model on another device or with another floating-point type."""
        return Model(copy.deepcopy(self.module).to(device=device, dtype=dtype))

    def for_stack(self) -> Model:
        """This model for use under torch.func.vmap."""
        twin = copy.copy(self)
        twin.stacked = True
        return twin

    @property
    def num_parameters(self) -> dict[str, int]:
        """Trainable parameters: nu_f of the extractor, nu_c of the head, nu_m of both."""
        size = {name: self.theta0[name].numel() for name in self.trainable}
        head = sum(count for name, count in size.items() if name.startswith("head."))
        return {"extractor": sum(size.values()) - head, "head": head, "model": sum(size.values())}

    # forward passes ------------------------------------------------------------------------------------------------

    def logits(self, theta: dict, x: Tensor) -> Tensor:
        """Class scores [B, C] in evaluation mode; x: standardised images [B, c, h, w]."""
        self._mode(training=False)
        return functional_call(self.module, theta, (x,))

    def layer_outputs(self, theta: dict, x: Tensor) -> dict[str, Tensor]:
        """Outputs of every convolution and linear layer in evaluation mode, by name, in order of depth."""
        layers = {
            name: layer for name, layer in self.module.named_modules() if isinstance(layer, (nn.Conv2d, nn.Linear))
        }
        return self._watch(theta, x, layers, lambda inputs, output: output)

    def norm_inputs(self, theta: dict, x: Tensor) -> dict[str, Tensor]:
        """Inputs of every batch-norm layer in evaluation mode, by name."""
        return self._watch(theta, x, self.norms, lambda inputs, output: inputs[0])

    def loss(self, theta: dict, batch, train: Iterable[str] | None = None) -> tuple[Tensor, dict]:
        """Mean cross-entropy of a minibatch in training mode, and the new running statistics.

        Batch-norm layers none of whose parameters are in `train` (default: all trainable) run in evaluation mode.
        """
        logits, stats = self._train_forward(theta, batch, self.trainable if train is None else train)
        each = functional.cross_entropy(logits, batch.y, reduction="none")
        if batch.mask is None:
            return each.mean(), stats
        return torch.where(batch.mask, each, 0).sum() / batch.mask.sum(), stats

    def batch_stats(self, theta: dict, batch) -> dict:
        """Mean and unbiased variance of every batch-norm input on this batch alone, named like the running statistics."""
        momenta = {layer: layer.momentum for layer in self.norms.values()}
        for layer in momenta:
            layer.momentum = 1.0
        try:
            return self._train_forward(theta, batch, self.trainable)[1]
        finally:
            for layer, momentum in momenta.items():
                layer.momentum = momentum

    # training steps ------------------------------------------------------------------------------------------------

    def sgd_step(self, theta: dict, batch, lr: float, train: Iterable[str] | None = None) -> dict:
        """theta - lr * gradient of the minibatch loss, for the parameters named in `train` (default: all trainable)."""
        part = {name: theta[name] for name in (self.trainable if train is None else train)}
        grads, stats = self.gradient(lambda p: self.loss({**theta, **p}, batch, part), part)
        return {**theta, **stats, **{name: part[name] - lr * grads[name] for name in part}}

    def gradient(self, fn: Callable[[dict], tuple[Tensor, dict]], params: dict) -> tuple[dict, dict]:
        """Gradient of fn(params) = (scalar, aux) with respect to params, and aux. One client at a time autograd is faster."""
        if self.stacked:
            return torch.func.grad(fn, has_aux=True)(params)
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        with torch.enable_grad():
            value, aux = fn(leaves)
        grads = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)  # 0 where fn does not depend
        return dict(zip(leaves, grads)), {name: leaf.detach() for name, leaf in aux.items()}

    # -----------------------------------------------------------------------------------------------------------------

    def _train_forward(self, theta: dict, batch, train: Iterable[str]) -> tuple[Tensor, dict]:
        self._mode(training=True)
        active = {
            name: layer for name, layer in self.norms.items() if f"{name}.weight" in train or f"{name}.bias" in train
        }
        for name, layer in self.norms.items():
            layer.mask, layer.training = batch.mask, name in active
        logits = functional_call(self.module, theta, (batch.x,))
        stats = {}
        for name, layer in active.items():
            stats[f"{name}.running_mean"], stats[f"{name}.running_var"] = layer.new_stats
        for layer in self.norms.values():
            layer.mask, layer.new_stats, layer.training = None, None, True
        return logits, stats

    def _watch(self, theta: dict, x: Tensor, layers: dict[str, nn.Module], pick: Callable) -> dict[str, Tensor]:
        seen: dict[str, Tensor] = {}

        def watcher(name: str) -> Callable:
            return lambda _, inputs, output: seen.__setitem__(name, pick(inputs, output))

        hooks = [layer.register_forward_hook(watcher(name)) for name, layer in layers.items()]
        try:
            self.logits(theta, x)
        finally:
            for hook in hooks:
                hook.remove()
        return seen

    def _mode(self, training: bool) -> None:
        if self.module.training != training:
            self.module.train(training)
