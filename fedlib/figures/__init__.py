"""Figures: pure functions from tables to matplotlib figures. They train nothing and read nothing."""

from fedlib.figures.accuracy import accuracies, accuracies_by_scale
from fedlib.figures.base import show
from fedlib.figures.choices import choices_by_task
from fedlib.figures.clients import (
    client_matrices,
    clusters_found,
    groups,
    label_similarity,
    partitions,
    shares_of_others,
)
from fedlib.figures.lessons import (
    accuracy_by_round,
    curves,
    feature_plane,
    idle_shares,
    local_paths,
    parabolas,
    sampling_errors,
    split_models,
)
from fedlib.figures.pfedsim import (
    cka_by_layer,
    classifier_similarity,
    data_and_networks,
    domains,
    open_choices,
    overhead,
    rho_curve,
    similarity_measures,
    workflow,
)
from fedlib.figures.pfedsv_relevance import (
    collaboration,
    distances_to_a,
    domain_curves,
    relevance_matrices,
    traffic,
)
from fedlib.figures.privacy import budgets, inversion, private_accuracies
from fedlib.figures.speed import scaling

__all__ = [
    "show",
    "partitions",
    "label_similarity",
    "client_matrices",
    "shares_of_others",
    "clusters_found",
    "groups",
    "open_choices",
    "choices_by_task",
    "cka_by_layer",
    "classifier_similarity",
    "similarity_measures",
    "data_and_networks",
    "accuracies",
    "accuracies_by_scale",
    "private_accuracies",
    "budgets",
    "inversion",
    "workflow",
    "overhead",
    "domains",
    "rho_curve",
    "domain_curves",
    "distances_to_a",
    "collaboration",
    "relevance_matrices",
    "traffic",
    "accuracy_by_round",
    "local_paths",
    "parabolas",
    "split_models",
    "curves",
    "idle_shares",
    "sampling_errors",
    "feature_plane",
    "scaling",
]
