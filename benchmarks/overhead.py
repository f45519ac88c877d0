"""Compare the measured training loop with a plain one, or with the code of its peers: `make bench`.

For torch, the plain loop runs the same steps. For Keras, it is `model.fit` with the same
network, optimiser and batches, timed from an epoch's beginning to its end, without its
preparations. With `--peer FOLDER`, it is the published code that the study repeats: `train` of
PyTorch's examples/mnist, nanoGPT's network and optimiser in the loop of its bench.py, or timm's
benchmark.py (after `pip install timm`, with `--steps 6`); FOLDER holds the file. Windows alternate (plain, measured,
measured, plain), so that a drift of the machine's speed affects both alike. The result is the
ratio within each block.
"""

import argparse
import contextlib
import io
import itertools
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy
from tqdm import tqdm

from benchbook import datasets
from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.judging import intervals
from benchbook.measuring import sensors
from benchbook.measuring.window import endless, train_window, trainer

KERAS = {"mobilenetv2_energy": 20, "segmentation_scaling": 3}
STEPS = {"mnist_speedup": 40, "simclr_epochs": 2, "resnet50_cost": 2, "gpt_tokens": 40} | KERAS


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


def mnist_peer(device: Device, num_steps: int, settings: str) -> tuple[Callable, Callable]:
    """Return the seconds of `train` in examples/mnist, and of the reference, on one loader."""
    import main as example
    import torch

    from benchbook.studies.mnist_speedup import plan as mnist

    workload = mnist.Plan.build(datasets.load("mnist", allow_embedded=True), device)
    images = torch.utils.data.Subset(workload.train_batches(0).dataset, range(64 * num_steps))
    loader, model = torch.utils.data.DataLoader(images, 64), example.Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    options = SimpleNamespace(log_interval=10, dry_run=False)

    def seconds() -> float:
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            example.train(options, model, torch.device("cpu"), loader, optimizer, 1)
        return time.perf_counter() - started

    return seconds, lambda: measured_seconds(workload, loader, sensors.open_sensor(device))


def gpt_peer(device: Device, num_steps: int, settings: str) -> tuple[Callable, Callable]:
    """Return the seconds of nanoGPT's steps and of the study's, on the network of its README."""
    import model as peer
    import torch

    from benchbook.studies.gpt_tokens import plan as gpt

    text = datasets.load("tinyshakespeare", allow_embedded=True)
    chosen = gpt.read_settings(f"fused_attention {settings}")
    workload = gpt.Plan.build(text, device, "controlled", settings=chosen)
    sizes = {"n_layer": 4, "n_head": 4, "n_embd": 128, "dropout": 0.0, "bias": False}
    configured = peer.GPTConfig(block_size=64, vocab_size=len(text.characters), **sizes)
    network = peer.GPT(configured)
    optimizer = network.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")
    network = torch.compile(network) if chosen.compiled else network

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.randint(len(text.train) - 64, (12,))
        parts = [text.train[start : start + 65].astype(numpy.int64) for start in starts]
        tokens = torch.stack([*map(torch.from_numpy, parts)])
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def seconds() -> float:
        started = time.perf_counter()
        for _ in range(num_steps):
            _, loss = network(*batch())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            loss.item()
        return time.perf_counter() - started

    train = trainer(workload, sensors.open_sensor(device))
    return seconds, lambda: train(num_steps)["seconds"]


def resnet50_peer(device: Device, num_steps: int, settings: str) -> tuple[Callable, Callable]:
    """Return the seconds of timm's benchmark of training and of the study's steps, 8 images each."""
    import benchmark

    from benchbook.frameworks.workload import Settings
    from benchbook.studies.resnet50_cost import plan as resnet50

    is_half = settings == "amp_bf16"
    own = Settings(settings, channels_last=True) if is_half else Settings()
    workload = resnet50.Plan.build(None, device, batch_size=8, settings=own)
    options = {"channels_last": is_half, "precision": "amp_bfloat16" if is_half else "float32"}
    counts = {"batch_size": 8, "num_warm_iter": 0, "num_bench_iter": num_steps}
    peer = benchmark.TrainBenchmarkRunner("resnet50", device="cpu", **counts, **options)
    train = trainer(workload, sensors.open_sensor(device))
    return (
        lambda: num_steps * 8 / peer.run()["samples_per_sec"],
        lambda: train(num_steps)["seconds"],
    )


PEERS = {"mnist_speedup": mnist_peer, "gpt_tokens": gpt_peer, "resnet50_cost": resnet50_peer}


def main() -> None:
    """Print the ratio of measured to plain seconds, with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", default="mnist_speedup", choices=STEPS, help="whose network")
    parser.add_argument("--device", default="best", help="cpu, cuda, mps, metal or best")
    parser.add_argument("--blocks", type=int, default=15, help="blocks of four windows")
    parser.add_argument("--steps", type=int, help="steps in a window")
    parser.add_argument("--peer", metavar="FOLDER", help="of a peer's code")
    parser.add_argument("--settings", default="", help="with --peer: compiled, or amp_bf16")
    options = parser.parse_args()
    num_steps = options.steps or STEPS[options.study]
    device = devices.pick(options.device, "tensorflow" if options.study in KERAS else "torch")
    if options.peer:
        sys.path.insert(0, options.peer)
        plain, measured = PEERS[options.study](device, num_steps, options.settings)
    elif options.study in KERAS:
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
        f"{options.study} {options.settings}: measured / {'peer' if options.peer else 'plain'}"
        f" with {device.framework} on {device.name} ({device.kind}), "
        f"{options.blocks} blocks of 4 x {num_steps} steps: "
        f"ratio {bounds.value:.4f}, {bounds.kind} {bounds.low:.4f} to {bounds.high:.4f}"
    )


if __name__ == "__main__":
    main()
