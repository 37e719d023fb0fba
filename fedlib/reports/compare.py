"""What a user has made beside what is published: which verdicts and which numbers differ, and by how much.

Numbers are those of an item's observations (<item>.csv), means over seeds. Seconds are left out: they are of a machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_float_dtype, is_numeric_dtype

from fedlib.analysis.run_ids import COLUMN
from fedlib.reports.report import saved_items
from fedlib.reports.saved import OWN

ROUNDING = 1e-5  # relative; tables have six digits
TIMES = "seconds"  # how columns begin that hold times
NUMBER = "#"  # of a row among those of the same texts and seed: rounds, clients


@dataclass(frozen=True)
class Comparison:
    """An item as it is published, and as it was made here.

    verdicts: claims whose verdicts differ, with the published and the own one; same: how many do not differ. cells: one
    row a number that differs: cell, published, own, difference, spread (standard deviation over seeds of what is
    published, NaN with one seed), seeds; compared: how many numbers there were. unmatched: rows that only one has.
    """

    item: str
    verdicts: list[tuple[str, str, str]] = field(default_factory=list)
    same: int = 0
    cells: pd.DataFrame = field(default_factory=pd.DataFrame)
    compared: int = 0
    unmatched: int = 0


def compare(place: str, names: Sequence[str] = ()) -> list[Comparison]:
    """The items, all or these, that are there both in results/<place> and in results/own/<place>, by name."""
    published, own = ({i["item"]: i for i in saved_items(p)} for p in (place, f"{OWN}/{place}"))
    both = [name for name in published if name in own and (not names or name in names)]
    return [_compared(published[name], own[name]) for name in both]


def _compared(published: dict, own: dict) -> Comparison:
    then, now = ({claim["claim"]: claim["verdict"] for claim in item["claims"]} for item in (published, own))
    claims = dict.fromkeys([*then, *now])
    differ = [(text, then.get(text, "no such claim"), now.get(text, "no such claim")) for text in claims]
    differ = [line for line in differ if line[1] != line[2]]
    tables = [_observations(item["path"].with_suffix(".csv")) for item in (published, own)]
    return Comparison(published["item"], differ, len(claims) - len(differ), *_cells(*tables))


def _observations(path: Path) -> pd.DataFrame:
    """An item's observations, numbered within rows of the same texts and seed."""
    frame = pd.read_csv(path).drop(columns=COLUMN, errors="ignore")
    frame = frame[[name for name in frame if not name.startswith(TIMES)]]
    frame = frame.assign(seed=frame.get("seed", 0))
    texts = [name for name in frame if not is_numeric_dtype(frame[name])]
    frame[texts] = frame[texts].fillna("").astype(str)
    number = frame.groupby([*texts, "seed"], sort=False).cumcount()
    return frame.assign(**{NUMBER: number}).set_index([*texts, "seed", NUMBER])


def _cells(then: pd.DataFrame, now: pd.DataFrame) -> tuple[pd.DataFrame, int, int]:
    """Numbers that differ, how many were compared, and how many rows were left out because only one table has them."""
    columns = ["cell", "published", "own", "difference", "spread", "seeds"]
    if then.index.names != now.index.names:
        return pd.DataFrame(columns=columns), 0, len(then) + len(now)
    shared = then.index.intersection(now.index)
    unmatched = len(then) + len(now) - 2 * len(shared)
    then, now = then.loc[shared], now.loc[shared]
    alike = [name for name in then if not is_float_dtype(then[name]) and then[name].equals(now.get(name))]
    by, lines = [name for name in shared.names if name != "seed"], []
    about = then[[name for name in alike if not is_bool_dtype(then[name])]].groupby(by, sort=False).first()
    about = [_said(row) for row in about.reset_index().to_dict("records")]
    seeds = then.groupby(by, sort=False).size()
    for name in (name for name in then if name in now and name not in alike):
        groups = [frame[name].astype(float).groupby(by, sort=False) for frame in (then, now)]
        (before, after), spread = (group.mean() for group in groups), groups[0].std(ddof=1)
        lines += zip([f"{name}: {what}" for what in about], before, after, after - before, spread, seeds)
    cells = pd.DataFrame(lines, columns=columns).astype({"published": float, "own": float})  # also where there are none
    same = np.isclose(cells["published"], cells["own"], rtol=ROUNDING, atol=1e-9, equal_nan=True)
    return cells[~same].reset_index(drop=True), len(cells), unmatched


def _said(row: dict) -> str:
    """The labels of a row as a text."""
    texts = [str(v) if isinstance(v, str) else f"{k} {v}" for k, v in row.items() if k != NUMBER]
    return ", ".join(text for text in texts if text)


def beyond(cells: pd.DataFrame) -> pd.Series:
    """Differences in units of the spread over seeds, NaN where there is one seed."""
    size, spread = cells["difference"].abs(), cells["spread"]
    return (size / spread.where(spread > 0)).mask(spread == 0, np.inf)


def in_one_line(found: Sequence[Comparison], place: str) -> str:
    """The comparison of many items: verdicts that are the same, and the largest difference of a number."""
    if not found:
        return f"nothing of these is published in results/{place} to compare with"
    same, verdicts = sum(one.same for one in found), sum(one.same + len(one.verdicts) for one in found)
    cells = _all_cells(found)
    text = f"beside results/{place}: {same} of {verdicts} verdicts are the same, "
    text += f"{len(cells)} of {sum(one.compared for one in found)} numbers differ"
    if len(cells):
        text += f" ({'; '.join(_largest(cells))}); `fedlib compare` lists them"
    return text


def _all_cells(found: Sequence[Comparison]) -> pd.DataFrame:
    frames = [one.cells.assign(item=one.item) for one in found if len(one.cells)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _largest(cells: pd.DataFrame) -> list[str]:
    """The largest difference of numbers with several seeds, in units of their spread, and of those with one seed."""
    units, texts = beyond(cells), []
    if units.notna().any():
        row, most = cells.loc[units.idxmax()], units.max()
        where = "within" if most <= 1 else "more than"
        texts.append(f"the largest is {where} the spread over seeds: {_number(row)}, spread {row['spread']:.3g}")
    single = cells[units.isna()]
    if len(single):
        row = single.loc[(single["difference"].abs() / single["published"].abs().clip(lower=1e-9)).idxmax()]
        texts.append(f"the largest of those with one seed, whose spread is not known: {_number(row)}")
    return texts


def _number(row: pd.Series) -> str:
    return f"{row['own']:.4g} for {row['published']:.4g}, {row['cell']} of {row['item']}"


def listed(one: Comparison, most: int) -> str:
    """One item's differences, a line each; most: so many numbers at most, those farthest beyond the spread first."""
    lines = [f"{one.item}: {one.same} of {one.same + len(one.verdicts)} verdicts are the same, "
             f"{len(one.cells)} of {one.compared} numbers differ"]  # fmt: skip
    lines += [f"  verdict  {then} -> {now}: {text}" for text, then, now in one.verdicts]
    if one.unmatched:
        lines.append(f"  {one.unmatched} rows are in one of the two tables only")
    if len(one.cells):
        units = beyond(one.cells)
        relative = one.cells["difference"].abs() / one.cells["published"].abs().clip(lower=1e-9)
        order = one.cells.assign(units=units.fillna(0), relative=relative)
        for k, row in order.sort_values(["units", "relative"], ascending=False).head(most).iterrows():
            sizes = f"{row['own']:.6g} for {row['published']:.6g} ({row['difference']:+.3g}, {_spread(row, units[k])})"
            lines.append(f"  {sizes}  {row['cell']}")
        if len(one.cells) > most:
            lines.append(f"  and {len(one.cells) - most} more")
    return "\n".join(lines)


def _spread(row: pd.Series, units: float) -> str:
    if np.isnan(units):
        return "one seed" if row["seeds"] == 1 else f"{row['seeds']} seeds, spread not known"
    return f"{'within' if units <= 1 else 'beyond'} the spread of {row['seeds']} seeds, {row['spread']:.3g}"
