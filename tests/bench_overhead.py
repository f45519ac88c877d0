"""Compare the measured training loop with the plain one that anyone would write: `make bench`.

For torch that is a bare loop over the same steps; for Keras it is `model.fit` with the same network, optimiser and
batches, timed between an epoch's beginning and its end, so that its preparations do not count against it. Windows
alternate (plain, measured, measured, plain), so that a machine whose speed drifts slows both alike; what is compared
is the ratio within each such block.
"""

import argparse
import itertools
import time
from collections.abc import Callable

import numpy
from tqdm import tqdm

from benchbook import datasets, devices, measure, protocol, statistics
from benchbook.devices import Device

STEPS = {"mnist_speedup": 40, "simclr_epochs": 2, "mobilenetv2_energy": 20}


def bare_seconds(workload, batches) -> float:
    """Return the seconds of a training loop as anyone would write it, synchronised at its ends."""
    devices.synchronize(workload.device)
    started = time.perf_counter()
    for batch in batches:
        workload.step(batch)
    devices.synchronize(workload.device)
    return time.perf_counter() - started


def measured_seconds(workload, batches, sensor) -> float:
    """Return the seconds of the same loop as every run measures it, bookkeeping outside the window included."""
    num_images = len(batches) * workload.batch_size
    with tqdm(total=num_images, mininterval=1.0, disable=True) as bar:
        started = time.perf_counter()
        protocol.train_window(workload, sensor, batches, bar)
        return time.perf_counter() - started


def torch_loops(study: str, kind: str, num_steps: int) -> tuple[Device, Callable, Callable]:
    """Return the device, and functions to the seconds of a plain and of a measured window.

    Batches lie on the device or are made there: no worker process, so no noise of theirs.
    """
    from benchbook.workloads import mnist, simclr

    device = devices.pick(kind)
    if study == "simclr_epochs":
        workload = simclr.build(datasets.load("shapes"), device, "tuned", batch_size=16)
    else:
        workload = mnist.build(datasets.load("digits"), device, "controlled", data_resident=True)
    sensor = measure.open_sensor(device)

    def batches() -> list:
        return list(itertools.islice(protocol.endless(workload), num_steps))

    return (
        device,
        lambda: bare_seconds(workload, batches()),
        lambda: measured_seconds(workload, batches(), sensor),
    )


def keras_loops(study: str, kind: str, num_steps: int) -> tuple[Device, Callable, Callable]:
    """Return the device, and functions to the seconds of an epoch of `model.fit` and of a measured window."""
    from benchbook.workloads import mobilenetv2
    from benchbook.workloads.keras import import_keras

    device, keras = devices.pick(kind, "tensorflow"), import_keras("tensorflow")
    options = {"image_size": 64, "batch_size": 32, "num_workers": 0}
    workload, plain = (mobilenetv2.build(datasets.load("shapes"), device, **options) for _ in range(2))
    batches, sensor = list(itertools.islice(workload.batches(0), num_steps)), measure.open_sensor(device)
    images, labels = (numpy.concatenate(part) for part in zip(*batches, strict=True))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # Without XLA, as the workload: Keras 3 would choose it by itself.
    plain.model.compile(plain.make_optimizer(), loss, jit_compile=plain.settings.compiled)

    class Watch(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.started = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            self.seconds = time.perf_counter() - self.started

    def fit_seconds() -> float:
        watch = Watch()
        plain.model.fit(images, labels, plain.batch_size, shuffle=False, verbose=0, callbacks=[watch])
        return watch.seconds

    return device, fit_seconds, lambda: measured_seconds(workload, batches, sensor)


def main() -> None:
    """Print the ratio of measured to plain seconds, with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", default="mnist_speedup", choices=STEPS, help="whose network")
    parser.add_argument("--device", default="best", help="cpu, cuda, mps, metal or best")
    parser.add_argument("--blocks", type=int, default=15, help="blocks of four windows")
    parser.add_argument("--steps", type=int, help="steps in a window")
    options = parser.parse_args()
    num_steps = options.steps or STEPS[options.study]
    loops = keras_loops if options.study == "mobilenetv2_energy" else torch_loops
    device, plain, measured = loops(options.study, options.device, num_steps)
    plain(), measured()  # warm-up
    ratios = []
    for _ in tqdm(range(options.blocks), desc="Blocks"):
        first, second, third, fourth = plain(), measured(), measured(), plain()
        ratios.append((second + third) / (first + fourth))
    bounds = statistics.interval(ratios, list(range(len(ratios))))
    print(
        f"{options.study}: measured / plain with {device.framework} on {device.name} ({device.kind}), "
        f"{options.blocks} blocks of 4 x {num_steps} steps: "
        f"median {numpy.median(ratios):.4f}, {bounds.kind} {bounds.low:.4f} to {bounds.high:.4f}"
    )


if __name__ == "__main__":
    main()
