"""What of a point's parameters may be published, and the work that its name says."""

import hashlib
import re
from collections.abc import Callable

# Returns a point's name from its study and parameters. It refers to the defaults of the study's
# Plan, which only packages above this one know: `studies.parameters` sets it.
name_of: Callable[[str, dict], str] | None = None
# Parameters that change no result: the data folder, when the processes are enough, and what else a
# notebook shows.
UNMEASURED = frozenset({"data_root", "try_seconds", "explore"})
UNMEASURED |= {"num_processes", "fewest_processes", "processes_part"}
UNMEASURED |= {"purchase_price", "sync_batch_norm"}  # which older rows have, 0 and False
# Parameters that may name a file, as `path/to/file.py:callable`; only the file's name counts, not
# its folder.
FILES = ("network", "loader", "loss")
# Callables that take a network's name, and the argument with the name.
REGISTRIES = {
    "timm:create_model": "model_name",
    "torchvision.models:get_model": "name",
}
HASH = re.compile(r"-([0-9a-f]{8})$")
MAX_LENGTH = 100  # characters of a name without its hash
TRIALS_PREFIX = "matrix_"  # of the part of a name that describes trials outside the training


def public(parameters: dict) -> dict:
    """Return parameters for publication: no data folder, files by name only, `arguments` with
    texts as a digest."""
    kept = {name: value for name, value in parameters.items() if name not in UNMEASURED}
    files = {name: kept[name] for name in kept.keys() & FILES if ".py:" in str(kept[name])}
    kept |= {name: re.split(r"[/\\]", value)[-1] for name, value in files.items()}
    if isinstance(arguments := kept.get("arguments"), str):
        known = REGISTRIES.get(str(kept.get("network")))
        others = re.sub(rf"\b{known}=(['\"])[\w.-]+\1", "", arguments) if known else arguments
        if "'" in others or '"' in others:  # texts may be paths or keys, other than that of `known`
            kept["arguments"] = f"sha256_{hashlib.sha256(arguments.encode()).hexdigest()[:8]}"
    return kept


def point_work(name: str, device: str) -> str:
    """Return the part of a point's name that is the same on every device and for every budget.

    That is the name without device, trials and hash, or only the hash if the name was cut.
    """
    readable, match = HASH.sub("", name), HASH.search(name)
    if match and len(readable) >= MAX_LENGTH:
        return match[1]
    return "-".join(
        part
        for part in readable.split("-")
        if part != device and not part.startswith(TRIALS_PREFIX)
    )
