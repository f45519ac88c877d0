"""How much starts of a process differ on a device: one small training, measured in several processes of its own.

What a process is given when it starts (memory layout, clocks, placement of threads) decides how fast it is by more
than its windows show. Intervals of all studies learn from these rows how much that is here; see `benchbook.intervals`.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable

import numpy
import pandas

from benchbook import devices, intervals, measure, runs
from benchbook.devices import Device
from benchbook.roofline import operations
from benchbook.runs import Run

BATCH_SIZE, PIXELS, CLASSES, CHANNELS = 64, 28, 10, 32
LEARNING_RATE = 1e-4
SECONDS_ALLOWED = 120  # for one start; the slowest import takes half a minute on a busy computer


def measure_starts(
    device: Device, record: Run, num_starts: int, num_windows: int = 6, seconds: float = 0.25
) -> pandas.DataFrame:
    """Append windows of the same small training from several processes, one after the other; `repeat` counts them.

    A start that fails, as where this process holds a device that belongs to one process alone, is a row of status
    `unsupported`, and the last.

    Args:
        device: where they train.
        record: the run that takes the rows.
        num_starts: processes; 0 measures nothing.
        num_windows: of each process.
        seconds: that a window should last.

    Returns:
        The rows.

    Raises:
        ValueError: a negative number of starts.
    """
    if num_starts < 0:
        raise ValueError(f"num_starts {num_starts!r}; allowed: 0 or more")
    rows = []
    with record.during("calibrate"):
        for repeat in range(num_starts):
            work = {"model": intervals.STARTS, "precision": "fp32", "batch_size": BATCH_SIZE, "repeat": repeat}
            try:
                windows = _start(device, num_windows, seconds)
            except (subprocess.SubprocessError, ValueError) as error:
                reason = runs.anonymous(str(getattr(error, "stderr", None) or error))[-2000:]
                rows.append(record.append(**work, status="unsupported", message=reason, started_at=runs.now()))
                break
            rows += [record.append(**work, **window) for window in windows]
    return pandas.DataFrame(rows)


def deviation(rows: pandas.DataFrame) -> float | None:
    """Return the standard deviation between the starts of one run, of log rates; None of fewer than two.

    Args:
        rows: from `measure_starts`.
    """
    measured = rows[rows["samples_per_second"].notna()] if len(rows) else rows
    if measured.empty or measured["repeat"].nunique() < 2:
        return None
    return float(numpy.log(measured.groupby("repeat")["samples_per_second"].median().astype(float)).std(ddof=1))


def train(device: Device, num_windows: int, seconds: float) -> list[dict]:
    """Return windows of a small convolutional network's training, in this process, as measures of rows."""
    devices.seed(0, device.framework)
    step, sensor = _STEPS[device.framework](device), measure.open_sensor(device)
    operations.queue(step, 10)
    count = operations.calls_lasting(seconds, lambda number: _window(device, measure.NoSensor(), step, number).seconds)
    windows = []
    for _ in range(num_windows):
        started_at = runs.now()
        window = _window(device, sensor, step, count)
        samples = count * BATCH_SIZE
        rate = {"samples": samples, "samples_per_second": samples / window.seconds, "started_at": started_at}
        windows.append(window.columns() | rate)
    return windows


def _window(device: Device, sensor, step: Callable, count: int):
    with measure.window(device, sensor) as window:
        window.last = operations.queue(step, count)
    return window


def _start(device: Device, num_windows: int, seconds: float) -> list[dict]:
    """Return the windows that a new process measured."""
    command = [sys.executable, "-m", "benchbook.roofline.starts", device.kind, device.framework]
    command += [str(num_windows), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_ALLOWED)
    return json.loads(done.stdout.splitlines()[-1])


def _batch() -> tuple[numpy.ndarray, numpy.ndarray]:
    random = numpy.random.default_rng(0)
    images = random.normal(size=(BATCH_SIZE, PIXELS, PIXELS, 1)).astype(numpy.float32)
    return images, random.integers(CLASSES, size=BATCH_SIZE)


def _torch_step(device: Device) -> Callable:
    import torch
    from torch import nn

    images, labels = (torch.from_numpy(part).to(device.kind) for part in _batch())
    images = images.permute(0, 3, 1, 2).contiguous()
    network = nn.Sequential(nn.Conv2d(1, CHANNELS, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(CLASSES))
    network.to(device.kind)(images)
    optimiser = torch.optim.SGD(network.parameters(), LEARNING_RATE)

    def step(previous):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step


def _jax_step(device: Device) -> Callable:
    import jax

    with jax.default_device(devices.handle(device)):
        images, labels = (jax.device_put(part) for part in _batch())
        random = numpy.random.default_rng(1)
        side = PIXELS // 2
        shapes = (3, 3, 1, CHANNELS), (side * side * CHANNELS, CLASSES)
        weights = [jax.device_put(random.normal(scale=0.01, size=shape).astype(numpy.float32)) for shape in shapes]

    def loss(weights):
        layout = ("NHWC", "HWIO", "NHWC")
        hidden = jax.lax.conv_general_dilated(images, weights[0], (1, 1), "SAME", dimension_numbers=layout)
        hidden = jax.nn.relu(hidden).reshape(BATCH_SIZE, side, 2, side, 2, CHANNELS).max(axis=(2, 4))
        chances = jax.nn.log_softmax(hidden.reshape(BATCH_SIZE, -1) @ weights[1])
        return -jax.numpy.take_along_axis(chances, labels[:, None], axis=1).mean()

    @jax.jit
    def update(weights):
        gradients = jax.grad(loss)(weights)
        return [weight - LEARNING_RATE * gradient for weight, gradient in zip(weights, gradients, strict=True)]

    return lambda previous: update(weights if previous is None else previous)


def _tensorflow_step(device: Device) -> Callable:
    import tensorflow

    with tensorflow.device(devices.handle(device)):
        images, labels = (tensorflow.constant(part) for part in _batch())
        side = PIXELS // 2
        random = numpy.random.default_rng(1)
        shapes = (3, 3, 1, CHANNELS), (side * side * CHANNELS, CLASSES)
        weights = [tensorflow.Variable(random.normal(scale=0.01, size=shape).astype(numpy.float32)) for shape in shapes]

    @tensorflow.function
    def update():
        with tensorflow.GradientTape() as tape:
            hidden = tensorflow.nn.relu(tensorflow.nn.conv2d(images, weights[0], 1, "SAME"))
            hidden = tensorflow.reshape(tensorflow.nn.max_pool2d(hidden, 2, 2, "SAME"), (BATCH_SIZE, -1))
            losses = tensorflow.nn.sparse_softmax_cross_entropy_with_logits(labels, hidden @ weights[1])
            loss = tensorflow.reduce_mean(losses)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(LEARNING_RATE * gradient)
        return loss

    def step(previous):
        with tensorflow.device(devices.handle(device)):
            return update()

    return step


_STEPS = {"torch": _torch_step, "tensorflow": _tensorflow_step, "jax": _jax_step}


def main() -> None:
    """Print the windows of one start as JSON, on the last line."""
    parser = argparse.ArgumentParser(description="Train a small network in this process, and print its windows.")
    parser.add_argument("kind", help="device")
    parser.add_argument("framework", help="torch, tensorflow or jax")
    parser.add_argument("num_windows", type=int, help="timed windows")
    parser.add_argument("seconds", type=float, help="how long each should last")
    options = parser.parse_args()
    device = devices.pick(options.kind, options.framework)
    print(json.dumps(train(device, options.num_windows, options.seconds)))


if __name__ == "__main__":
    main()
