"""How fast is one training step? Compiled, by PyTorch within fedlib, and in a plain PyTorch loop, on one core.

A step is forward pass, gradient of the mean cross-entropy and SGD on one minibatch of random images; in DP-SGD every
image's gradient is clipped, and noise is added (there is no plain loop of it). All take turns; times are seconds of the
processor, and a ratio is the median over the turns of the ratio within one turn.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

import pandas as pd
import torch
from torch import nn
from tqdm import tqdm

from fedlib.base.errors import require
from fedlib.base.provenance import provenance
from fedlib.benchmarks.speed import save
from fedlib.data.batch import Batch
from fedlib.engine.export import ordinary
from fedlib.engine.setup import arithmetic
from fedlib.models import Model, build
from fedlib.privacy.noise import Mechanism, PrivateGradient

LR, NUM_CLASSES, TURN = 0.01, 10, 0.3  # TURN: seconds, about
TASKS = [  # network, its options, shape of an image, size of a batch, whether by DP-SGD
    ("lenet5_bn", {"pools": 2}, (3, 32, 32), 32, False),
    ("lenet5_bn", {"pools": 1}, (3, 32, 32), 32, False),
    ("lenet5_bn", {"pools": 2}, (1, 28, 28), 10, False),
    ("lenet5", {}, (3, 32, 32), 32, False),
    ("mcmahan_cnn", {"padding": "valid"}, (3, 32, 32), 32, False),
    ("mcmahan_cnn", {"padding": "same"}, (1, 28, 28), 10, False),
    ("lenet5", {}, (3, 32, 32), 32, True),
    ("mcmahan_cnn", {"padding": "same", "width": 0.125}, (3, 32, 32), 32, True),
    ("mcmahan_cnn", {"padding": "same"}, (3, 32, 32), 32, True),
]


def plain_step(model: Model, batch: Batch) -> Callable[[], None]:
    """A step of a loop that knows nothing of fedlib, of the same network from stock modules."""
    net = ordinary(copy.deepcopy(model), model.theta0, torch.float32).train()
    loss_function, optimiser = nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), lr=LR)

    @torch.enable_grad()
    def step():
        loss = loss_function(net(batch.x), batch.y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def fedlib_step(model: Model, batch: Batch, kind: str, private: bool = False) -> Callable[[], None]:
    """A step of `Model.sgd_step`, or with `private` of DP-SGD; kind: "torch" or "fused"."""
    gradient = PrivateGradient(Mechanism("record", 1.0, 1.0), len(batch.y), torch.randn) if private else None
    twin = model.to(torch.device("cpu"), torch.float32)
    twin.insist(kind)
    held = [twin.theta0]

    @torch.no_grad()
    def step():
        held[0] = twin.sgd_step(held[0], batch, LR, differentiate=gradient)

    return step


def seconds_of(step: Callable[[], None], count: int) -> float:
    """Processor seconds of one step, the mean over `count`."""
    start = time.process_time()
    for _ in range(count):
        step()
    return (time.process_time() - start) / count


def bench_steps(repeats: int = 5, quick: bool = False) -> tuple[str, pd.DataFrame]:
    """Measure all tasks; returns what was measured, in words, and the table. Writes results/bench/steps.{csv,json}.

    quick: two small tasks, written to results/bench+quick/. Raises BadValue where steps cannot be compiled.
    """
    require(repeats >= 1, "repeats", repeats, "an integer of at least 1")
    rows = []
    for name, options, shape, size, private in tqdm(TASKS[2:8:4] if quick else TASKS, unit="network", leave=False):
        model, draw = build(name, shape, NUM_CLASSES, **options), torch.Generator().manual_seed(0)
        x = torch.randn(size, *shape, generator=draw)
        batch = Batch(x, torch.randint(NUM_CLASSES, (size,), generator=draw))
        steps = {} if private else {"plain": plain_step(model, batch)}
        steps |= {kind: fedlib_step(model, batch, kind, private) for kind in ("torch", "fused")}
        with arithmetic("float32"):  # one thread
            count = 2 if quick else max(3, int(TURN / max(seconds_of(step, 3) for step in steps.values())))
            times = [{kind: seconds_of(step, count) for kind, step in steps.items()} for _ in range(repeats)]
        times = pd.DataFrame(times).reindex(columns=["plain", "torch", "fused"])
        ratios = times["plain"] / times["fused"]
        rows.append({
            "network": " ".join([name, *(f"{k}={v}" for k, v in options.items())]),
            "by": "DP-SGD" if private else "SGD", "images": "x".join(map(str, shape)), "batch": size,
            **{f"{kind}, ms": 1e3 * times[kind].median() for kind in times},
            "fused: x plain": ratios.median(), "min": ratios.min(), "max": ratios.max(),
            "fused: x torch": (times["torch"] / times["fused"]).median(),
        })  # fmt: skip
    table, origin = pd.DataFrame(rows), provenance(torch.device("cpu"), "bench")
    words = (
        "One training step on one core: a plain PyTorch loop, fedlib with PyTorch steps, compiled (processor time).\n"
        f"{origin['device']}, torch {origin['versions']['torch']}. Medians of {repeats} repetitions."
    )
    save(table, "steps", quick, {"work": words, **origin})
    return words, table
