"""Compare the measured training loop with the same loop bare: `make bench`.

Windows alternate (bare, measured, measured, bare), so that a machine whose speed drifts slows both alike; what is
compared is the ratio within each such block.
"""

import argparse
import itertools
import time

import numpy
from tqdm import tqdm

from benchbook import datasets, devices, measure, protocol, statistics
from benchbook.workloads import mnist


def bare_seconds(workload, batches) -> float:
    """Return the seconds of a training loop as anyone would write it, synchronised at its ends."""
    devices.synchronize(workload.device)
    started = time.perf_counter()
    for batch in batches:
        workload.step(batch)
    devices.synchronize(workload.device)
    return time.perf_counter() - started


def measured_seconds(workload, batches, sensor, bar) -> float:
    """Return the seconds of the same loop as every run measures it, bookkeeping outside the window included."""
    started = time.perf_counter()
    protocol.train_window(workload, sensor, batches, bar)
    return time.perf_counter() - started


def main() -> None:
    """Print the ratio of measured to bare seconds, with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="best", help="cpu, cuda, mps or best")
    parser.add_argument("--blocks", type=int, default=15, help="blocks of four windows")
    parser.add_argument("--steps", type=int, default=40, help="steps in a window")
    options = parser.parse_args()
    device = devices.pick(options.device)
    workload = mnist.build(datasets.load("digits"), device, "controlled", data_resident=True)
    sensor = measure.open_sensor(device)

    def batches():
        return list(itertools.islice(itertools.cycle(workload.batches(0)), options.steps))

    for batch in batches():  # warm-up
        workload.step(batch)
    ratios = []
    with tqdm(total=2 * options.blocks * options.steps * 64, mininterval=1.0, disable=True) as bar:
        for _ in tqdm(range(options.blocks), desc="Blocks"):
            first, second = bare_seconds(workload, batches()), measured_seconds(workload, batches(), sensor, bar)
            third, fourth = measured_seconds(workload, batches(), sensor, bar), bare_seconds(workload, batches())
            ratios.append((second + third) / (first + fourth))
    bounds = statistics.interval(ratios, list(range(len(ratios))))
    print(
        f"measured / bare on {device.name} ({device.kind}), {options.blocks} blocks of 4 x {options.steps} steps: "
        f"median {numpy.median(ratios):.4f}, {bounds.kind} {bounds.low:.4f} to {bounds.high:.4f}"
    )


if __name__ == "__main__":
    main()
