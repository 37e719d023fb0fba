"""pFedSV, "Rethinking Personalized Client Collaboration in Federated Learning", item by item; modules are groups of items."""

from fedlib.experiments.pfedsv import (
    accuracy,
    communication,
    distance,
    domain,
    inversion,
    multiwise,
    notes,
    partitions,
    privacy,
    relevance,
)

ITEMS = (
    *domain.ITEMS,
    *distance.ITEMS,
    *multiwise.ITEMS,
    *partitions.ITEMS,
    *accuracy.ITEMS,
    *relevance.ITEMS,
    *communication.ITEMS,
    *privacy.ITEMS,
    *inversion.ITEMS,
    *notes.ITEMS,
)
