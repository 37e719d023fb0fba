"""Figures: pure functions from tables to matplotlib figures. They train nothing and read nothing.

A function is imported where it is first asked for, so that a command or a worker that draws nothing need not wait for matplotlib.
"""

from importlib import import_module

_BY_MODULE = {
    "accuracy": "accuracies parameter_curve",
    "base": "show",
    "choices": "choices_by_task",
    "clients": "client_matrices clusters_found groups label_similarity partitions shares_of_others",
    "lessons": "accuracy_by_round curves feature_plane idle_shares local_paths parabolas sampling_errors split_models",
    "pfedsim": "cka_by_layer classifier_similarity data_and_networks domains open_choices overhead similarity_measures workflow",
    "pfedsv_relevance": "collaboration distances_to_a domain_curves relevance_matrices traffic",
    "privacy": "budgets inversion",
    "speed": "scaling",
}
_PLACES = {name: module for module, names in _BY_MODULE.items() for name in names.split()}
__all__ = list(_PLACES)


def __getattr__(name: str):
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
