"""Tables and figures of the papers as items that can be run, drawn, compared and checked."""

from fedlib.experiments import pfedsim
from fedlib.experiments.items import PROFILES, Claim, Item, OpenItem, Verdict, open_item, paper_table

ITEMS: dict[str, Item] = {item.name: item for module in (pfedsim,) for item in module.ITEMS}

__all__ = ["ITEMS", "PROFILES", "Claim", "Item", "OpenItem", "Verdict", "open_item", "paper_table"]
