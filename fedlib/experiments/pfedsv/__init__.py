"""pFedSV, "Rethinking Personalized Client Collaboration in Federated Learning", item by item; modules are groups of items."""

from fedlib.experiments.pfedsv import communication, distance, domain, multiwise, notes, partitions, relevance

ITEMS = (
    *domain.ITEMS,
    *distance.ITEMS,
    *multiwise.ITEMS,
    *partitions.ITEMS,
    *relevance.ITEMS,
    *communication.ITEMS,
    *notes.ITEMS,
)
