"""What an item leaves behind: its figure, its tables, its claims and where they come from."""

from __future__ import annotations

import json

import torch

from fedlib.analysis.uncertainty import units
from fedlib.base.files import write_atomically
from fedlib.base.provenance import provenance
from fedlib.claims import Claim, Verdict
from fedlib.experiments import OpenItem


def save(opened: OpenItem) -> dict:
    """Write figure, tables and claims under figures/ and results/; returns what the report needs."""
    item, (paper, stem) = opened.item, opened.item.name.split("/")
    folder = opened.root / "results" / opened.place / paper
    for table, frame in opened.tables.items():
        if not table.startswith("_"):
            path = folder / f"{stem if table == 'tidy' else f'{stem}.{table}'}.csv"
            write_atomically(path, frame.to_csv(index=False, float_format="%.6g").encode())
    picture = opened.root / "figures" / opened.place / paper / f"{stem}.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    opened.figure().savefig(picture, dpi=110, bbox_inches="tight", metadata={"Software": None})
    summary = {
        "item": item.name,
        "title": item.title,
        "profile": opened.profile,
        "changed": opened.changed,
        "settings": opened.settings,
        "data": sorted({spec.dataset for spec in opened.specs}),
        "seeds": units(opened.tables),
        "claims": [_claim(claim, v, *said) for (claim, v), said in zip(opened.checked, opened.verdicts())],
        "runs": [spec.id for spec in opened.specs],
        "missing": opened.missing,
        "diverged": opened.diverged,
        "provenance": _origins(opened),
        "figure": str(picture.relative_to(opened.root)),
        "shown": item.shown,
        "answer": opened.answer(),
    }
    write_atomically(folder / f"{stem}.json", (json.dumps(summary, indent=1) + "\n").encode())
    return summary


def _claim(claim: Claim, found: Verdict, text: str, said: Verdict) -> dict:
    """A claim as it is kept; found: with its margins, said: in the words that fit the data."""
    entry, closest = (
        {"claim": text, "kind": claim.kind, "verdict": said.status, "evidence": said.evidence},
        found.closest,
    )
    known = closest is not None and abs(closest.low) < float("inf")
    return entry | ({"margin": [round(end, 4) for end in (closest.value, closest.low, closest.high)]} if known else {})


def _origins(opened: OpenItem) -> list[dict]:
    """The distinct origins of the runs, date and shared rounds left out; this process, where there are none."""
    origins = [r.provenance for r in opened.results] or [provenance(torch.device("cpu"), "none")]
    kept = [{k: v for k, v in origin.items() if k not in ("date", "shared_rounds")} for origin in origins]
    return [json.loads(text) for text in sorted({json.dumps(origin, sort_keys=True) for origin in kept})]
