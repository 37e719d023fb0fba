"""FedAvg+FT: train with FedAvg; every client tests a copy of the global model fine-tuned on its own data.

K. Wang, R. Mathews, C. Kiddon, H. Eichner, F. Beaufays, D. Ramage. "Federated Evaluation of On-device Personalization."
arXiv:1910.10252, 2019. Y. Mansour, M. Mohri, J. Ro, A. T. Suresh. "Three Approaches for Personalization with
Applications to Federated Learning." arXiv:2002.10619, 2020.

| paper | here | meaning | default and its source |
|---|---|---|---|
| θ^t | server["theta"] | global model, trained as in FedAvg | |
| | k | epochs of fine-tuning before a test, with the lr and batch size of training | 5 = E (pFedSV does not say) |
| | ft_part | what is fine-tuned: "all", "head" or "extractor" | "all" |

The fine-tuned copies are discarded; all clients are fine-tuned when tested, also those that never took part.

Differences from the papers: none known; Wang et al. stop fine-tuning where a client's validation error is lowest, here
k is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base.options import option


@dataclass(frozen=True)
class FedAvgFT(FedAvg):
    k: int = option(5, 1, inf)
    ft_part: str = option("all", "all", "head", "extractor")

    def fine_tune(self, model, theta, data, epochs):
        return local_sgd(model, theta, data, epochs, train=trained_part(model, self.ft_part))

    def eval_points(self, server):
        return (f"ft({self.k})", "glob")


def trained_part(model, part: str) -> tuple[str, ...]:
    """Names of the trainable parameters of "all", "head" or "extractor"."""
    return tuple(name for name in model.trainable if part == "all" or name.startswith(f"{part}."))
