"""Count the work of a timed loop, after its windows and off the clock, because a clock cannot check the work.

The loader may repeat one batch or read a tenth of the data, samples may be miscounted, a step may train on part of its
batch, and an evaluation may run in training mode. Each fault shows in one of the counts here. A last comparison with
float64 finds faults that begin after the first steps. Its row's settings hold the counts, and
`benchbook.judging.parity` judges them.
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

LOADER_SECONDS = 4.0  # the most for reading the loader's batches


def check(workload: Workload, record: Run, fresh: Any) -> None:
    """Append a row of phase `parity` with the counts; the workload stays unchanged.

    Nothing is counted on several devices, for a user's own network (its batches may be anything), or if the workload's
    precision was not compared with float64 before the windows.

    Args:
        workload: after its windows.
        record: the run that stores the row.
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
        counts, images, batch = _count_loaded(workload)
        if workload.plain.labels:  # without labels an evaluation may draw at random, or have no loss
            counts |= _count_evaluated(workload, images)
        counts["audited_unused"] = _count_unused(workload, trained, batch)
        workload.restore(fresh)
        parity.check(workload, record, 1, extra_settings=counts)
    finally:
        workload.restore(trained)


def _count_loaded(workload: Workload) -> tuple[dict, set, tuple]:
    """Return counts of the first part of an epoch, digests of its images, and its first batch.

    The epoch's length is counted only if the epoch ends within that part. Of synthetic images only one batch is read.
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
    full = sizes[:-1] if batch is None else sizes  # an epoch's last batch may be smaller
    counts |= {"audited_samples": seen, "audited_images": sum(sizes), "audited_distinct": len(images)}
    return counts | {"audited_odd_batches": sum(size != workload.batch_size for size in full)}, images, first


def _count_evaluated(workload: Workload, images: set) -> dict:
    """Return how many test images are training images, and how much an image's loss depends on the other images.

    In inference mode it depends on neither the other images nor its place. So a batch's loss is the mean over two
    batches, each with one of its halves twice.
    """
    own, batch = workload.test_batches, next(iter(workload.test_batches()))
    tests = _digests(batch[0])
    counts, half = {"audited_tests": len(tests), "audited_trained_tests": len(tests & images)}, len(batch[0]) // 2
    if not half:  # a single image
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


def _count_unused(workload: Workload, state: Any, batch: tuple) -> int:
    """Return how many of a batch's two ends, its first and last image, do not affect a step's loss.

    Each end is replaced by an image of another label, because features may be dead: once with that image's label, and
    once with the label of the end, because the loss of images that the network has learnt may be rounded to zero.
    Weights and random state are the same each time. A step that skips half of its batch skips one of the ends. The
    count is 0 if all labels are equal, or if not even a batch of nothing but the first replacement changes the loss.
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
    """Return a batch in another order: torch tensors stay on their device, others become NumPy arrays."""
    return tuple(part[order] if hasattr(part, "is_floating_point") else numpy.asarray(part)[order] for part in batch)


def _host(part: Any) -> numpy.ndarray:
    """Return a part of a batch as a NumPy array; floats of torch become float32, since NumPy has no bfloat16."""
    if hasattr(part, "is_floating_point"):
        part = (part.float() if part.is_floating_point() else part).cpu()
    return numpy.asarray(part)


def _digests(part: Any) -> set[bytes]:
    return {hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in _host(part)}
