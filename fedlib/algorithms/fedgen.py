"""FedGen: FedAvg whose clients are regularised by a generator of features that the server learns from their heads.

Z. Zhu, J. Hong, J. Zhou. "Data-Free Knowledge Distillation for Heterogeneous Federated Learning." ICML 2021,
arXiv:2105.10056. Algorithm 1.

| paper | here | meaning | default and its source |
|---|---|---|---|
| θ = (θ^f, θ^p) | server["theta"] | global model: feature extractor and predictor (head) | |
| w, G_w(y, ε) | server["generator"] | generator: label and noise to a feature vector | 32 hidden units (pFedSim) |
| ε | noise | its dimension | 32 (pFedSim) |
| α, β | alpha, beta | weights of generated features and of the answers to them | 10, 10 (pFedSim, "α_generative") |
| | decay, floor | both are multiplied by decay every round, down to floor | 0.98, 1e-4 (pFedSim) |
| B_g / B | | generated features for each sample of a minibatch | 1 (32 / 32, pFedSim) |
| T_g | steps | Adam steps on the generator a round, of 32 labels each | 5 (pFedSim) |
| | server_lr | their learning rate, times decay every round | 3e-4 (the authors' code; not in the paper) |

With h the head, a client's loss on (x, y) is, from the second round on, l(h(f(x)), y) + beta KL(h(G(y, ε)) || h(f(x)))
+ alpha l(h(G(y', ε')), y'). The generator's is sum over i of rho_iy l(h_i(G(y, ε)), y), rho_iy the share of
client i in the participants' samples of class y, y uniform on the labels of which a participant has more than one
sample on average (as in FL-bench; in the authors' code, of which at least one has).

Readings where paper, authors' code and FL-bench differ (each an option). The defaults are FL-bench's, with which
pFedSim's authors ran it; labels="global", ensemble="logits" is the paper:
- labels: y' is uniform on the client's "own" labels (FL-bench); uniform on "all" that any client has (the authors'
  code); or follows the "global" distribution, that of all clients' samples (the paper). With "own" nobody trains on
  classes that it lacks (lesson 3 shows what that does).
- ensemble: "losses", the sum above (both codes); "logits", l(mean over i of h_i(G(y, ε)), y) without rho (Eq. 4).

Readings of what is left open:
- The generator's teachers are the uploaded heads, as in the paper.
- The label counts are told once (`Setting.class_counts`), and so is what clients need to know of them for y'; they are
  not counted in the rounds.
- Clients use the generator in evaluation mode: its batch norm is sent as one scale and shift for each unit.
- A minibatch smaller than B comes with fewer generated features, one for each of its samples.

Differences from the paper: the defaults of labels and ensemble; the last three readings; y is uniform, where the paper
draws it as it draws y'; without labels to draw the generator keeps its weights. The authors' code wants different
features for different noise, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf

import torch

from fedlib.algorithms.api import Algorithm, always, local_epochs
from fedlib.algorithms.parts import generator
from fedlib.algorithms.parts.passes import local_sgd, one_hot
from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.options import option

LABELS = 32  # of a server step


@dataclass(frozen=True)
class FedGen(Algorithm):
    alpha: float = option(10.0, 0, inf)
    beta: float = option(10.0, 0, inf)
    decay: float = option(0.98, 0, 1)
    floor: float = option(1e-4, 0, inf)
    noise: int = option(32, 1, 10_000)
    steps: int = option(5, 0, inf)
    server_lr: float = option(3e-4, 0, inf)
    labels: str = option("own", "own", "all", "global")
    ensemble: str = option("losses", "losses", "logits")
    points = ("glob", "post", "ft")
    passes = local_epochs
    eval_points = always("glob")
    unprotected = "the server knows how many samples of every class a client has"
    added = ("labels", "ensemble")
    gone = {"diversity": 0.0, "virtual": 1, "teacher": "clients"}

    def init(self, model, setting):
        C, d = model.theta0["head.weight"].shape
        G = generator.initial_generator(setting.seed, self.noise + C, d, like=model.theta0["head.weight"])
        server = {"round": 0, "seed": setting.seed, "counts": setting.class_counts, "theta": model.theta0}
        return {**server, "generator": G, "adam": generator.first_adam_state(G)}, {}

    def download(self, server, i):
        first = server["round"] == 0  # both terms start in the second round
        fade = self.decay ** server["round"]
        weights = [0.0 if first or w == 0 else max(self.floor, w * fade) for w in (self.alpha, self.beta)]
        alpha, beta = server["theta"]["head.bias"].new_tensor(weights).unbind()
        G = server["generator"]
        G = generator.with_statistics(G, G["mean"], G["var"])  # in evaluation mode
        message = {"theta": server["theta"], "generator": G, "alpha": alpha, "beta": beta}
        return message if self.labels == "own" else {**message, "labels": self.all_labels(server).to(alpha.device)}

    def all_labels(self, server):
        """How often each label is to be y', in proportion; int64 [C]."""
        counts = server["counts"].sum(0)
        return counts if self.labels == "global" else (counts > 0).to(counts)

    def client_update(self, model, message, client, data):
        G, alpha, beta = message["generator"], message["alpha"], message["beta"]
        wanted = message.get("labels", data.class_counts > 0)

        def loss(theta, batch, train):
            z, stats = model.training_features(theta, batch, train)
            scores = model.classify(theta, z).log_softmax(1)
            eps, number, eps_imagined = batch.noise.split([self.noise, 1, self.noise], dim=1)
            own = one_hot(batch.y, len(wanted)).to(z)
            target = model.classify(theta, generator.generated(G, own, eps)).log_softmax(1).detach()
            agreement = (target.exp() * (target - scores)).sum(1)  # KL(target || scores)
            drawn = generator.drawn_labels(number[:, 0], wanted).to(z)
            imagined = generator.generated(G, drawn, eps_imagined)
            answers = model.classify(theta, imagined).log_softmax(1)
            invented = -(drawn * answers).sum(1)  # l
            return batch.mean(-(own * scores).sum(1) + beta * agreement + alpha * invented), stats

        theta = local_sgd(model, message["theta"], data, loss=loss, noise=2 * self.noise + 1)
        return {**message, "theta": theta}, client  # only theta travels

    def floats_down(self, message):
        return {part: message[part] for part in ("theta", "generator")}

    def floats_up(self, upload):
        return upload["theta"]

    def server_update(self, server, ids, uploads, n):
        G, adam = self.taught(server, uploads["theta"], server["counts"][torch.as_tensor(ids)])
        server = {**server, "generator": G, "adam": adam, "round": server["round"] + 1}
        return {**server, "theta": tree.weighted_mean(uploads["theta"], n)}

    def taught(self, server, teachers, counts):
        """The generator and Adam's state after this round's steps; teachers: K heads, stacked, counts: [K, C]."""
        G, adam, like = server["generator"], server["adam"], teachers["head.weight"]
        draw = rng(server["seed"], "generator", server["round"])
        labels = (counts.double().mean(0) > 1).nonzero()[:, 0]
        share = (counts / counts.sum(0).clamp(min=1)).to(like)  # rho [K, C]
        for _ in range(self.steps if len(labels) else 0):
            y = labels[torch.from_numpy(draw.integers(len(labels), size=LABELS))].to(like.device)
            eps = torch.from_numpy(draw.standard_normal((LABELS, self.noise))).to(like)
            loss = partial(generator.taught_loss, teachers, share, y, eps, self.ensemble)
            G, adam = generator.trained_step(G, adam, loss, self.server_lr * self.decay ** server["round"])
        return G, adam

    def personal_model(self, model, message, client, data):
        return message["theta"]
