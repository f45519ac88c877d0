"""Count the work of a timed loop, after its windows and outside the clock, because a clock cannot check the work.

A fault may lie in the loader (one batch for ever, a tenth of the data), in the count of samples, in a step that trains
on a part of its batch, or in an evaluation. Each has a count of its own here; a last comparison with float64 sees
faults that begin after the first steps. The counts are settings of that comparison's row, which
`benchbook.judging.parity` judges.
"""

import hashlib
import time
from typing import Any

import numpy

from benchbook.frameworks.workload import Workload
from benchbook.judging.parity import AUDITED_SHARE
from benchbook.measuring import parity
from benchbook.measuring.writer import Run
from benchbook.rows import records

LOADER_SECONDS = 4.0  # at most, to check the loader's batches


def check(workload: Workload, record: Run, fresh: Any) -> None:
    """Append a row of phase `parity` that holds what was counted; the workload stays as it is.

    Where nothing was compared with float64 before the windows, nothing is afterwards; nor on several devices, nor of a
    network of the user's own, whose batches may be anything.

    Args:
        workload: after its windows.
        record: the run that takes the row.
        fresh: the workload's snapshot from before its windows.
    """
    if workload.device.count != 1 or not getattr(workload, "plain", None) or workload.plain.may_be_random:
        return
    before = records.read(record.path)
    before = before[before["phase"].eq("parity") & before["status"].eq("ok")]
    if not before["precision"].eq(workload.description().get("precision")).any():
        return
    trained = workload.snapshot()
    try:
        workload.enter()
        counts, images, batch = _look_at_loader(workload)
        if workload.plain.labels:  # without, an evaluation may draw at random, or have no loss
            counts |= _look_at_evaluation(workload, images)
        counts["audited_unused"] = _unused_images(workload, trained, batch)
        workload.restore(fresh)
        parity.check(workload, record, 1, told=counts)
    finally:
        workload.restore(trained)


def _look_at_loader(workload: Workload) -> tuple[dict, set, tuple]:
    """Return counts of a first part of an epoch, digests of its images, and its first batch.

    Only an epoch that ends has a length. Synthetic images are one batch, which is read once.
    """
    epoch, seen, images, sizes = workload.description()["dataset_samples"] or 0, 0, set(), []
    until, batches = time.monotonic() + LOADER_SECONDS, workload.batches(0)
    counts, first = {}, None
    while first is None or (seen <= AUDITED_SHARE * epoch and time.monotonic() < until):
        batch = next(batches, None)
        if batch is None:
            counts["audited_epoch"] = seen
            break
        first = batch if first is None else first
        seen += workload.num_samples(batch)
        sizes.append(len(batch[0]))
        images |= _digests(batch[0])
    full = sizes[:-1] if batch is None else sizes  # the last one of an epoch may be smaller
    counts |= {"audited_samples": seen, "audited_images": sum(sizes), "audited_distinct": len(images)}
    return counts | {"audited_odd_batches": sum(size != workload.batch_size for size in full)}, images, first


def _look_at_evaluation(workload: Workload, images: set) -> dict:
    """Return how many test images are among training's, and how far the loss of an image depends on the others.

    In inference mode it does not, nor on its place: a batch's loss is the mean of its halves', each of them doubled.
    """
    own, batch = workload.test_batches, next(iter(workload.test_batches()))
    tests = _digests(batch[0])
    counts, half = {"audited_tests": len(tests), "audited_trained_tests": len(tests & images)}, len(batch[0]) // 2
    if not half:  # one image depends on no other
        return counts | {"evaluation_error": 0.0}
    first, second = list(range(half)), list(range(half, 2 * half))
    losses = []
    try:
        for order in (first + second, first + first[::-1], second + second[::-1]):
            taken = _take(batch, order)
            workload.test_batches = lambda taken=taken: iter([taken])
            losses.append(float(workload.evaluate().loss))
    finally:
        workload.test_batches = own
    error = abs((losses[1] + losses[2]) / 2 / losses[0] - 1) if losses[0] else 0.0
    return counts | {"evaluation_error": float(numpy.nan_to_num(error, nan=1.0, posinf=1.0))}


def _unused_images(workload: Workload, state: Any, batch: tuple) -> int:
    """Return how many of a batch's ends do not change the loss of a step in which another image takes their place.

    It is one of another label, since features may be dead. Then it has the label of its place, since the loss of an
    image that the network has learnt may be rounded to zero, and so may the other one's. Weights and random state are
    the same each time. Half of a batch cannot be left out without one of its ends; a loss that no exchange changes says
    nothing.
    """
    targets, whole = _host(batch[-1]), list(range(len(batch[0])))
    first, last = (
        next((index for index in whole if not numpy.array_equal(targets[index], targets[place])), place)
        for place in (0, whole[-1])
    )

    def loss(images: list[int], labels: list[int]) -> float:
        workload.restore(state)
        return workload.mean_loss([workload.step((*_take(batch[:1], images), *_take(batch[1:], labels)))])

    base = loss(whole, whole)
    ends = [first, *whole[1:]], [*whole[:-1], last]
    unused = sum(all(loss(images, labels) == base for labels in (images, whole)) for images in ends)
    same = [first] * len(whole)
    return unused if unused and first and loss(same, same) != base else 0


def _take(batch: tuple, order: list[int]) -> tuple:
    """Return the images of a batch in another order: torch's stay where they are, others come as NumPy's arrays."""
    return tuple(part[order] if hasattr(part, "is_floating_point") else numpy.asarray(part)[order] for part in batch)


def _host(part: Any) -> numpy.ndarray:
    """Return a part of a batch as NumPy has it; it has no bfloat16."""
    if hasattr(part, "is_floating_point"):
        part = (part.float() if part.is_floating_point() else part).cpu()
    return numpy.asarray(part)


def _digests(part: Any) -> set[bytes]:
    return {hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in _host(part)}
