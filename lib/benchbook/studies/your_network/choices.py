"""What may be asked of a network of one's own; a wrong choice is refused before a framework or the user's code runs."""

import math
from collections.abc import Mapping
from typing import Any

from benchbook.measuring import support
from benchbook.studies import datasets
from benchbook.studies.your_network import loading, sizes

VARIANTS = ("reference", "tuned")
FRAMEWORKS = ("torch", "tensorflow", "jax")
OPTIMIZERS = ("sgd", "adam", "adamw")
SYNTHETIC, EXAMPLE = "synthetic", "example"
DATASETS = (SYNTHETIC, "image_folder", "cifar10", "mnist")
LEAST = {"image_size": 1, "channels": 1, "num_classes": 2, "batch_size": 1, "num_workers": 0}
ALLOWED = {
    "variant": VARIANTS,
    "framework": FRAMEWORKS,
    "optimizer": OPTIMIZERS,
    "precision": support.PRECISIONS,
    "dataset": DATASETS,
}


def check(chosen: Mapping[str, Any]) -> None:
    """Refuse choices that cannot be measured.

    Args:
        chosen: parameters of the notebook by name, those that were chosen; what is not in it is not looked at.

    Raises:
        ValueError: names the first that is wrong, its value and what is allowed.
    """
    for name, allowed in ALLOWED.items():
        if chosen.get(name, allowed[0]) not in allowed:
            more = ", or an example" if name == "dataset" else ""
            raise ValueError(f"{name} {chosen[name]!r}; allowed: {', '.join(allowed)}{more}")
    for name, least in LEAST.items():
        if chosen.get(name, least) < least:
            raise ValueError(f"{name} {chosen[name]}; allowed: {least} or more")
    rate = chosen.get("learning_rate", 1.0)
    if not 0 < rate < math.inf:
        raise ValueError(f"learning_rate {rate}; allowed: above 0, and finite")
    if chosen.get("variant") == "tuned" and chosen.get("precision", "fp32") != "fp32":
        raise ValueError(f"precision {chosen['precision']!r}; allowed with variant tuned: fp32, the search chooses one")
    sizes.read(chosen.get("batch_sizes", ""))
    loading.keywords(chosen.get("arguments", ""))
    _check_data(chosen)
    for what in loading.NAMED:
        if chosen.get(what):
            loading.check(chosen[what], what)


def _check_data(chosen: Mapping[str, Any]) -> None:
    """Refuse a data set that does not go with the example or the loss, or that is not where it was said to be."""
    dataset, data_root = chosen.get("dataset", SYNTHETIC), chosen.get("data_root", "")
    if dataset != SYNTHETIC:
        if chosen.get("example"):
            raise ValueError(f"dataset {dataset!r}; allowed beside an example: {SYNTHETIC}")
        if chosen.get("loss"):
            raise ValueError(f"loss {chosen['loss']!r}; allowed with dataset {dataset}: none, it is cross-entropy")
        datasets.check_place(dataset, data_root)
    elif data_root:
        raise ValueError(f"data_root {data_root!r}; allowed with dataset {SYNTHETIC}: none, it is read by the others")
