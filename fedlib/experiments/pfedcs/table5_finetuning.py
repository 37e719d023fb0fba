"""Table 5: epochs of fine-tuning the teacher."""

from fedlib.claims import Claim, below, within
from fedlib.experiments.pfedcs.task import ALL_ROUNDS, DIRICHLET, LESS, PFEDCS, item, table

TUNED = {f"rho = {epochs}": {**PFEDCS, "E_ft": epochs} for epochs in (0, 1, 2, 3, 5, 10)}
FLAT = ["rho = 1", "rho = 2", "rho = 3", "rho = 5"]
COLUMNS = {"cifar100, Dir(0.05)": DIRICHLET["cifar100, Dir(0.05)"]}

TABLE = table("5", COLUMNS, TUNED, lambda cell: f"rho = {cell['rho_finetune']}")
ITEM = item(
    TABLE, "Table 5: epochs of fine-tuning", (0.2, 0.2, 280, 7_000),
    Claim("One epoch of fine-tuning improves accuracy by more than 3 points.", below(["rho = 0"], ["rho = 1"], by=3)),
    Claim("From one to five epochs the accuracy stays within half a point.", within(FLAT, 0.5)),
    Claim("Ten epochs are worse than five.", below(["rho = 10"], ["rho = 5"])),
    smaller_reduced=f"{LESS}; {ALL_ROUNDS.removesuffix('; ')}",
)  # fmt: skip
