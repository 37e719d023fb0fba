"""Tables and figures of the papers as items that can be run, drawn, compared and checked."""

from fedlib.experiments import fedsimsup, pfedsim, pfedsv
from fedlib.experiments.items import PROFILES, Claim, Item, OpenItem, Verdict, at_paper_scale, open_item, paper_table

ITEMS: dict[str, Item] = {item.name: item for module in (pfedsim, fedsimsup, pfedsv) for item in module.ITEMS}

__all__ = ["ITEMS", "PROFILES", "Claim", "Item", "OpenItem", "Verdict", "at_paper_scale", "open_item", "paper_table"]
