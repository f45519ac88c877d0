"""What of a point's parameters may be published, and the work that its name says."""

import re

# Parameters that change no result: the data folder, when the processes are enough, and what else a
# notebook shows.
UNMEASURED = frozenset({"data_root", "try_seconds", "explore"})
UNMEASURED |= {"num_processes", "fewest_processes", "processes_part"}
UNMEASURED |= {"purchase_price", "sync_batch_norm"}  # which older rows have, 0 and False
HASH = re.compile(r"-([0-9a-f]{8})$")
MAX_LENGTH = 100  # characters of a name without its hash
TRIALS_PREFIX = "matrix_"  # of the part of a name that describes trials outside the training


def public(parameters: dict) -> dict:
    """Return parameters for publication: those that change a result, without the data folder."""
    return {name: value for name, value in parameters.items() if name not in UNMEASURED}


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
