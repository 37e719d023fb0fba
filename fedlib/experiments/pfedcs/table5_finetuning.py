"""Table 5: epochs of fine-tuning the teacher."""

from fedlib.claims import Claim, below, both, within
from fedlib.experiments.pfedcs.task import DIRICHLET, item, table

TUNED = {f"rho = {epochs}": {"method": "pfedcs", "E_ft": epochs} for epochs in (0, 1, 2, 3, 5, 10)}
FLAT = ["rho = 1", "rho = 2", "rho = 3", "rho = 5"]
COLUMNS = {"cifar100, Dir(0.05)": DIRICHLET["cifar100, Dir(0.05)"]}

TABLE = table("5", COLUMNS, TUNED, lambda cell: f"rho = {cell['rho_finetune']}")
ITEM = item(
    TABLE, "Table 5: epochs of fine-tuning", 75,
    Claim("One epoch of fine-tuning brings a jump (3 points at least), more bring nothing.",
          both(below(["rho = 0"], FLAT, by=3), within(FLAT, 0.5))),
)  # fmt: skip
