"""pFedSV, "Rethinking Personalized Client Collaboration in Federated Learning", item by item; modules are groups of items."""

from fedlib.experiments.pfedsv import partitions

ITEMS = (*partitions.ITEMS,)
