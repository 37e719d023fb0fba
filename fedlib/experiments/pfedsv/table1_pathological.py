"""Table 1: the accuracy of eleven methods with two classes a client."""

from fedlib.claims import Claim, below, both, place
from fedlib.experiments.pfedsv import task
from fedlib.experiments.pfedsv.task import METHODS, OTHERS, OWN, SINGLE_MODEL

CLUSTERED = ("ifca", "fedem")
TABLE = task.table("1", "ring")

ITEM = TABLE.item(
    title="pFedSV Table 1: accuracy with two classes a client",
    claim="With two classes a client, pFedSV is more accurate than local training and nine federated methods.",
    claims=(
        task.BEST,
        Claim("FedAvg and FedProx are lowest, at least 10 points below Separate (`local`).",
              both(below(SINGLE_MODEL, OTHERS, **OWN), below(SINGLE_MODEL, ["local"], by=10, **OWN))),
        Claim("IFCA and FedEM lie between the single models and Separate.",
              both(below(SINGLE_MODEL, CLUSTERED, **OWN), below(CLUSTERED, ["local"], **OWN))),
        Claim("With many clients pFedHN is second.", place("pfedhn", 2, METHODS, columns=["many"], **OWN)),
        task.FEWER,
        task.AT_POST,
        task.ORDER,
    ),
    **task.COMMON,
)  # fmt: skip
