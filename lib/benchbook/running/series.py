"""Batches that cannot fit into memory: trying them would swap for hours."""

from benchbook.judging import wording
from benchbook.machine import identity, nvidia
from benchbook.machine.kinds import KINDS
from benchbook.rows import networks
from benchbook.running.profiles import Point

PROCESS_BYTES = 2**30  # of torch or TensorFlow before it trains: 0.8 to 1.1 GB in committed rows


def too_large(point: Point, failed: list[Point]) -> str:
    """Return why a point's batch cannot fit into memory, or nothing.

    Args:
        point: to be measured.
        failed: points of this computer that ran out of memory.
    """
    size = point.parameters.get("batch_size")
    if not size:
        return ""
    smaller = [
        other.parameters["batch_size"]
        for other in failed
        if other.study == point.study
        and other.parameters | {"batch_size": size} == point.parameters
    ]
    if smaller and min(smaller) < size:
        return f"not tried, because batch_size {min(smaller)} did not fit into memory"
    needed, held = needed_bytes(point), memory_bytes(point.parameters["device"])
    if needed and held and needed > held:
        gigabytes = (f"{wording.number(number / 2**30)} GiB" for number in (needed, held))
        return "not tried, because it needs about {} of {}".format(*gigabytes)
    return ""


def needed_bytes(point: Point) -> float | None:
    """Return the least memory that training takes on each device of a point, or the most where a
    GPU shares main memory: a Mac swaps for hours. None if the network was not counted."""
    given = point.parameters
    # Frozen weights have no moments; another width is another network.
    if given.get("lora_rank") or given.get("width", 1) != 1:
        return None
    is_reference = given.get("variant") == "reference"
    precision = (
        given.get("precision", "fp32") if is_reference else "bf16"
    )  # a search may choose 16 bits
    size, length = given.get("image_size"), given.get("sequence_length") or None
    work = given.get("model", point.study)
    work += "_all" if given.get("trainable") is True else ""  # every layer is trained
    network = networks.describe(work, size, length)
    samples = given["batch_size"] / given.get("device_count", 1)
    if _shares_memory(given["device"]):
        samples *= networks.MOST_OVER_COUNT["tokens" if network.sequence_length else "images"]
    return network.memory_bytes(samples, precision)


def memory_bytes(kind: str) -> int | None:
    """Return the memory of a device of this computer; None if it is unknown.

    A Mac's GPU uses a part of main memory, without what the process takes besides. NVIDIA's GB10,
    of which NVML tells no memory, and Jetson, which has no NVML, use main memory as well.
    """
    if kind == "cpu":
        return identity.memory_bytes()
    if _shares_memory(kind):
        return int(networks.UNIFIED * identity.memory_bytes()) - PROCESS_BYTES
    if KINDS[kind].energy_counter != "nvml":
        return None
    known = [size for _, size in nvidia.kinds() if size]
    return min(known, default=identity.memory_bytes())


def _shares_memory(kind: str) -> bool:
    return kind != "cpu" and not KINDS[kind].own_chip
