"""Figure 2: the accuracy of eight methods over the rounds."""

from fedlib.analysis.tables import only
from fedlib.claims import Claim, best, not_tested, over_seeds, under
from fedlib.claims.judges import first
from fedlib.experiments.fedsimsup import table1_dirichlet as table1
from fedlib.experiments.fedsimsup import task
from fedlib.experiments.fedsimsup.task import by_round, over_rounds, picture
from fedlib.experiments.item import Found, Item, Tables

CLIENTS = ", 100"  # the paper does not say how many


def runs(s: dict) -> dict:
    """Those of Table 1 with many clients."""
    return {key: spec for key, spec in table1.TABLE.runs(s).items() if key[1].endswith(CLIENTS)}


def analyse(s: dict, found: Found) -> Tables:
    """tidy: one row a run and evaluated round; early: the one after a tenth of them; steps: how far apart successive
    evaluations of the second half are; _last: what Table 1 reads off the same runs, after the last."""
    tidy = over_rounds(found, task.average(s))
    tidy.attrs["data"] = s.get("dataset", "")
    tenth = min(tidy["round"].unique(), key=lambda t: abs(t - s["rounds"] / 10)) if len(tidy) else 0
    half = min(tidy["round"].unique(), key=lambda t: abs(t - s["rounds"] / 2), default=0)
    late = tidy[tidy["round"] > s["rounds"] / 2]
    moves = late.groupby(["column", "row", "seed"], sort=False)["accuracy"].agg(lambda a: a.diff().abs().mean())
    return {
        "tidy": tidy,
        "_last": table1.TABLE.read_off(s, found)["tidy"],
        "early": only(tidy, round=tenth),
        "steps": moves.reset_index().assign(alpha=lambda t: t["column"].str.extract(r"(Dir\(.*?\))", expand=False)),
        "compare": by_round(tidy, {f"ours, round {t} of {s['rounds']}, %": t for t in (tenth, half) if t}
                            | {"ours, last round, %": s["rounds"]}).assign(paper="a curve; no numbers reported"),
    }  # fmt: skip


def on(dataset: str, tables: str, judge):
    """A check on the columns of one data set."""

    def check(found):
        own = {tables: found[tables][found[tables]["column"].str.startswith(dataset)]}
        if not len(own[tables]):
            return not_tested(f"needs {dataset}")
        return over_seeds(tables, "accuracy", "row", judge, 100, "column", ["fedsimsup", "fedrep"])(own)

    return check


ITEM = Item(
    title="FedSimSup Figure 2: convergence of eight methods",
    claim="FedSimSup starts more slowly on CIFAR-100, but ends highest everywhere.",
    settings=task.SETTINGS,
    smaller=task.MANY,
    smaller_reduced=f"{task.LESS}; {task.SEEDS}",
    minutes={"smoke": 0.2, "quick": 0.5, "reduced": 260, "paper": 2500},
    runs=runs,
    analyse=analyse,
    figure=lambda tables: picture(tables, "fedsimsup"),
    partial=True,
    claims=(
        Claim("FedSimSup ends highest, on both data sets and at both alphas.",
              lambda tables: best("fedsimsup", task.METHODS)({"tidy": tables["_last"]})),
        Claim("On CIFAR-100 FedSimSup starts more slowly: after a tenth of the rounds it is less accurate than FedRep.",
              on("cifar100", "early", under(["fedsimsup"], ["fedrep"]))),
        Claim("FedSimSup's accuracy fluctuates more at Dir(0.5) than at Dir(0.1).",
              over_seeds("steps", "accuracy", "alpha", first("Dir(0.5)", ".2f", "mean change per evaluation, points"),
                         scale=100, needs=["Dir(0.1)", "Dir(0.5)"], row="fedsimsup")),
    ),
)  # fmt: skip
