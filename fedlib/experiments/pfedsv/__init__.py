"""pFedSV, "Rethinking Personalized Client Collaboration in Federated Learning", item by item; modules are groups of items."""

from fedlib.experiments.pfedsv import accuracy, inversion, partitions, privacy

ITEMS = (
    *partitions.ITEMS,
    *accuracy.ITEMS,
    *privacy.ITEMS,
    *inversion.ITEMS,
)
