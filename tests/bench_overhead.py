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
from benchbook.workloads import mnist, simclr

STEPS = {"mnist_speedup": 40, "simclr_epochs": 2}


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


def build(study: str, device):
    """Return a workload whose batches lie on the device or are made there: no worker process, so no noise of theirs."""
    if study == "simclr_epochs":
        return simclr.build(datasets.load("shapes"), device, "tuned", batch_size=16)
    return mnist.build(datasets.load("digits"), device, "controlled", data_resident=True)


def main() -> None:
    """Print the ratio of measured to bare seconds, with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", default="mnist_speedup", choices=STEPS, help="whose network")
    parser.add_argument("--device", default="best", help="cpu, cuda, mps or best")
    parser.add_argument("--blocks", type=int, default=15, help="blocks of four windows")
    parser.add_argument("--steps", type=int, help="steps in a window")
    options = parser.parse_args()
    device, num_steps = devices.pick(options.device), options.steps or STEPS[options.study]
    workload = build(options.study, device)
    sensor = measure.open_sensor(device)

    def batches():
        return list(itertools.islice(protocol.endless(workload), num_steps))

    for batch in batches():  # warm-up
        workload.step(batch)
    ratios = []
    with tqdm(total=2 * options.blocks * num_steps * workload.batch_size, mininterval=1.0, disable=True) as bar:
        for _ in tqdm(range(options.blocks), desc="Blocks"):
            first, second = bare_seconds(workload, batches()), measured_seconds(workload, batches(), sensor, bar)
            third, fourth = measured_seconds(workload, batches(), sensor, bar), bare_seconds(workload, batches())
            ratios.append((second + third) / (first + fourth))
    bounds = statistics.interval(ratios, list(range(len(ratios))))
    print(
        f"{options.study}: measured / bare on {device.name} ({device.kind}), "
        f"{options.blocks} blocks of 4 x {num_steps} steps: "
        f"median {numpy.median(ratios):.4f}, {bounds.kind} {bounds.low:.4f} to {bounds.high:.4f}"
    )


if __name__ == "__main__":
    main()
