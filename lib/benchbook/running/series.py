"""Batches that cannot fit into memory: trying them would swap for hours."""

from benchbook.judging import wording
from benchbook.machine import identity, nvidia
from benchbook.machine.kinds import KINDS
from benchbook.rows import networks
from benchbook.running.profiles import Point


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
    needed, held = least_bytes(point), memory_bytes(point.parameters["device"])
    if needed and held and needed > held:
        gigabytes = (f"{wording.number(number / 2**30)} GiB" for number in (needed, held))
        return "not tried, because it needs about {} of {}".format(*gigabytes)
    return ""


def least_bytes(point: Point) -> float | None:
    """Return the least memory that training takes on each device of a point; None if the network
    was not counted."""
    given = point.parameters
    if given.get("lora_rank"):  # frozen weights have no moments
        return None
    is_reference = given.get("variant") == "reference"
    precision = (
        given.get("precision", "fp32") if is_reference else "bf16"
    )  # a search may choose 16 bits
    size, length = given.get("image_size"), given.get("sequence_length") or None
    work = given.get("model", point.study)
    work += "_all" * (given.get("trainable") is True)  # every layer is trained
    network = networks.describe(work, size, length)
    return network.memory_bytes(given["batch_size"] / given.get("device_count", 1), precision)


def memory_bytes(kind: str) -> int | None:
    """Return the memory of a device of this computer; None if it is unknown.

    A Mac's GPU uses a part of main memory. So does NVIDIA's GB10, of which NVML tells no memory,
    and Jetson, which has no NVML.
    """
    if kind == "cpu":
        return identity.memory_bytes()
    if not KINDS[kind].own_chip:
        return int(networks.UNIFIED * identity.memory_bytes())
    if KINDS[kind].energy_counter != "nvml":
        return None
    known = [size for _, size in nvidia.kinds() if size]
    return min(known, default=identity.memory_bytes())
