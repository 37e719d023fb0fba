"""Table 1: the accuracy of eleven methods with two classes per client."""

from fedlib.claims import Claim, below, both, place
from fedlib.experiments.pfedsv import task
from fedlib.experiments.pfedsv.task import METHODS, OTHERS, OWN, SINGLE_MODEL

CLUSTERED = ("ifca", "fedem")
TABLE = task.table("1", "ring")

ITEM = TABLE.item(
    title="pFedSV Table 1: accuracy with pathological label skew (two classes per client)",
    claim="With two classes per client, pFedSV is more accurate than local-only training and nine federated methods.",
    claims=(
        task.BEST,
        Claim("FedAvg and FedProx are lowest.", below(SINGLE_MODEL, OTHERS, **OWN)),
        Claim("FedAvg and FedProx are at least 10 points below local-only training (the paper's row Separate), where "
              "the paper's numbers can be read.",
              below(SINGLE_MODEL, ["local"], by=10, columns=lambda name: "mnist, few" not in name, **OWN)),
        Claim("IFCA and FedEM lie between the single global models and local-only training.",
              both(below(SINGLE_MODEL, CLUSTERED, **OWN), below(CLUSTERED, ["local"], **OWN))),
        Claim("With 100 clients pFedHN is second.",
              place("pfedhn", 2, METHODS, columns=lambda name: name.endswith("many"), **OWN)),
        task.FEWER,
        task.AT_POST,
        task.ORDER,
    ),
    **task.COMMON,
)  # fmt: skip
