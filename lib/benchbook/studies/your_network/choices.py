"""The allowed choices for your own network. A wrong choice is refused before your code or a framework runs."""

import math
from collections.abc import Mapping
from typing import Any

from benchbook.measuring import support
from benchbook.rows.points import FILES
from benchbook.studies.your_network import loading, sizes

ALLOWED = {
    "variant": ("reference", "tuned"),
    "optimizer": ("sgd", "adam", "adamw"),
    "precision": support.PRECISIONS,
}
LEAST = {"image_size": 1, "channels": 1, "num_classes": 2, "batch_size": 1}


def check(chosen: Mapping[str, Any]) -> None:
    """Refuse choices that cannot be measured.

    Args:
        chosen: parameters of the notebook by name; missing ones are not checked.

    Raises:
        ValueError: names the first wrong choice, its value and what is allowed.
    """
    for name, allowed in ALLOWED.items():
        if chosen.get(name, allowed[0]) not in allowed:
            raise ValueError(f"{name} {chosen[name]!r}; allowed: {', '.join(allowed)}")
    for name, least in LEAST.items():
        if chosen.get(name, least) < least:
            raise ValueError(f"{name} {chosen[name]}; allowed: {least} or more")
    rate = chosen.get("learning_rate", 1.0)
    if not 0 < rate < math.inf:
        raise ValueError(f"learning_rate {rate}; allowed: above 0, and finite")
    if chosen.get("variant") == "tuned" and chosen.get("precision", "fp32") != "fp32":
        raise ValueError(f"precision {chosen['precision']!r}; allowed with variant tuned: fp32 (it searches others)")
    sizes.read(chosen.get("batch_sizes", ""))
    loading.keywords(chosen.get("arguments", ""))
    if chosen.get("example") and chosen.get("loader"):
        raise ValueError(f"example {chosen['example']!r} and loader {chosen['loader']!r}; allowed: one of them")
    for what in FILES:
        if chosen.get(what):
            loading.find(chosen[what], what)
