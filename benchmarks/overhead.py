"""Compare the measured training loop with a plain one: `make bench`.

For torch, the plain loop runs the same steps. For Keras, it is `model.fit` with the same
network, optimiser and batches, timed from an epoch's beginning to its end, without its
preparations. Windows alternate (plain, measured, measured, plain), so that a drift of the
machine's speed affects both alike. The result is the ratio within each block.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy
from tqdm import tqdm

from benchbook import datasets
from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.judging import intervals
from benchbook.measuring import sensors
from benchbook.measuring.window import endless, train_window

KERAS = {"mobilenetv2_energy": 20, "segmentation_scaling": 3}
STEPS = {"mnist_speedup": 40, "simclr_epochs": 2, "resnet50_cost": 2} | KERAS


def bare_seconds(workload, batches) -> float:
    """Return the seconds of a plain training loop, synchronised at both ends."""
    workload.device.backend.synchronize(workload.device)
    started = time.perf_counter()
    for batch in batches:
        workload.step(batch)
    workload.device.backend.synchronize(workload.device)
    return time.perf_counter() - started


def measured_seconds(workload, batches, sensor) -> float:
    """Return the seconds of the same loop as a run measures it, including bookkeeping outside
    the window."""
    started = time.perf_counter()
    train_window(workload, sensor, batches)
    return time.perf_counter() - started


def torch_loops(workload, num_steps: int) -> tuple[Callable, Callable]:
    """Return functions that return the seconds of a plain and of a measured window.

    Batches are on the device or made there, so no worker process adds noise.
    """
    sensor = sensors.open_sensor(workload.device)

    def batches() -> list:
        return list(itertools.islice(endless(workload), num_steps))

    return lambda: bare_seconds(workload, batches()), lambda: measured_seconds(
        workload, batches(), sensor
    )


def torch_workload(study: str, device: Device):
    """Return a workload whose batches are ready, with small batches if a step takes long."""
    from benchbook.studies.mnist_speedup import plan as mnist
    from benchbook.studies.resnet50_cost import plan as resnet50
    from benchbook.studies.simclr_epochs import plan as simclr

    if study == "simclr_epochs":
        return simclr.Plan.build(datasets.load("shapes"), device, "tuned", batch_size=16)
    if study == "resnet50_cost":
        return resnet50.Plan.build(None, device, image_size=64, batch_size=16)
    return mnist.Plan.build(datasets.load("digits"), device, "controlled", data_resident=True)


def keras_workload(study: str, device: Device) -> tuple[Any, Any]:
    """Return a workload and its loss for Keras's `fit`."""
    from benchbook.frameworks.keras.runtime import import_keras
    from benchbook.studies.mobilenetv2_energy import plan as mobilenetv2
    from benchbook.studies.segmentation_scaling import plan as segmentation

    keras = import_keras("tensorflow")
    if study == "segmentation_scaling":
        data = datasets.triangles(24, 2, 128)
        made: Any = segmentation.Plan.build(
            data, device, batch_size=4, num_workers=0, image_size=128
        )
        return made, lambda masks, outputs: made.loss(outputs, masks)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    options = {"image_size": 64, "batch_size": 32, "num_workers": 0, "weights": "random"}
    return mobilenetv2.Plan.build(datasets.load("shapes"), device, **options), loss


def keras_loops(study: str, device: Device, num_steps: int) -> tuple[Callable, Callable]:
    """Return functions that return the seconds of an epoch of `model.fit` and of a measured
    window."""
    import keras

    (workload, _), (plain, loss) = keras_workload(study, device), keras_workload(study, device)
    batches, sensor = (
        list(itertools.islice(workload.batches(0), num_steps)),
        sensors.open_sensor(device),
    )
    images, labels = (numpy.concatenate(part) for part in zip(*batches, strict=True))
    # XLA as in the workload: by default, Keras 3 would decide.
    plain.model.compile(plain.make_optimizer(), loss, jit_compile=plain.settings.compiled)

    class Watch(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.started = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            self.seconds = time.perf_counter() - self.started

    def fit_seconds() -> float:
        watch = Watch()
        plain.model.fit(
            images, labels, plain.batch_size, shuffle=False, verbose=0, callbacks=[watch]
        )
        return watch.seconds

    return fit_seconds, lambda: measured_seconds(workload, batches, sensor)


def main() -> None:
    """Print the ratio of measured to plain seconds, with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", default="mnist_speedup", choices=STEPS, help="whose network")
    parser.add_argument("--device", default="best", help="cpu, cuda, mps, metal or best")
    parser.add_argument("--blocks", type=int, default=15, help="blocks of four windows")
    parser.add_argument("--steps", type=int, help="steps in a window")
    options = parser.parse_args()
    num_steps = options.steps or STEPS[options.study]
    device = devices.pick(options.device, "tensorflow" if options.study in KERAS else "torch")
    if options.study in KERAS:
        plain, measured = keras_loops(options.study, device, num_steps)
    else:
        plain, measured = torch_loops(torch_workload(options.study, device), num_steps)
    plain(), measured()  # warm-up
    ratios = []
    for _ in tqdm(range(options.blocks), desc="Blocks"):
        first, second, third, fourth = plain(), measured(), measured(), plain()
        ratios.append((second + third) / (first + fourth))
    bounds = intervals.interval(
        ratios, list(range(len(ratios))), intervals.Deviations(0.0, 0.0)
    )  # of one process
    print(
        f"{options.study}: measured / plain with {device.framework} on {device.name} ({device.kind}), "
        f"{options.blocks} blocks of 4 x {num_steps} steps: "
        f"ratio {bounds.value:.4f}, {bounds.kind} {bounds.low:.4f} to {bounds.high:.4f}"
    )


if __name__ == "__main__":
    main()
