"""pFedSim (arXiv:2305.15706), item by item; modules are groups of items.

Every item is a set of RunSpecs per profile, an analysis that turns results into tables, a figure, and claims.
"""

from fedlib.experiments.pfedsim import accuracy, domains, notes, overhead, partitions, rho, setting, study, workflow

ITEMS = (
    *study.ITEMS,
    *partitions.ITEMS,
    *workflow.ITEMS,
    *setting.ITEMS,
    *accuracy.ITEMS,
    *rho.ITEMS,
    *overhead.ITEMS,
    *domains.ITEMS,
    *notes.ITEMS,
)
