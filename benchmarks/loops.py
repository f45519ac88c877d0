"""Compare `benchbook.measure` and the callbacks with a stop-watch in the same loop: `make bench STUDIES=loops`.

The stop-watch reads the clock after each step, after the first second. Runs of one loop after the other differ by 15 %
on a shared machine, which would hide what is looked for; overhead.py tells what measuring costs. The result is the
measured rate over the stop-watch's. Lightning and transformers are used if installed.
"""

import contextlib
import importlib.util
import io
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy
import torch
from torch import nn
from torch.nn import functional as F

import benchbook
from benchbook import loop

BATCH, SIDE, RUNS, SECONDS, WARM_UP_SECONDS = 32, 28, 5, 4.0, 1.0
sys.path.append(str(Path(__file__).resolve().parents[1] / "docs" / "examples"))


def network() -> nn.Module:
    """Return a small convolutional network for images of 28 x 28 pixels."""
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32 * 12 * 12, 10))


def data() -> torch.utils.data.TensorDataset:
    """Return 1,000 random images, so that the last batch of an epoch is short."""
    return torch.utils.data.TensorDataset(torch.randn(1000, 1, SIDE, SIDE), torch.randint(10, (1000,)))


def loader() -> torch.utils.data.DataLoader:
    """Return the images in shuffled batches."""
    return torch.utils.data.DataLoader(data(), BATCH, shuffle=True)


def plain(model: nn.Module, wrap: Callable = lambda model: model, half: bool = False) -> tuple[Callable, Iterable]:
    """Return a step and its batches; the step may use autocast and a scaler."""
    optimizer, model = torch.optim.Adam(model.parameters()), wrap(model)
    scaler = torch.amp.GradScaler("cpu", enabled=half)

    def step(batch):
        images, labels = batch
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step, loader()


def accumulated() -> tuple[Callable, Iterable]:
    """Return a step of SGD that updates the weights after each fourth batch, with clipping and a schedule."""
    model, number = network(), itertools.count(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)

    def step(batch):
        loss = F.cross_entropy(model(batch[0]), batch[1]) / 4
        loss.backward()
        if next(number) % 4 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        return loss

    return step, loader()


def adversarial() -> tuple[Callable, Iterable]:
    """Return a step with two networks and two optimisers."""
    judge, maker = network(), nn.Sequential(nn.Linear(16, SIDE * SIDE), nn.Tanh(), nn.Unflatten(1, (1, SIDE, SIDE)))
    optimizers = [torch.optim.Adam(part.parameters(), 2e-4) for part in (judge, maker)]

    def step(batch):
        made = maker(torch.randn(len(batch[0]), 16))
        optimizers[0].zero_grad()
        (judge(made.detach()).mean() - judge(batch[0]).mean()).backward()
        optimizers[0].step()
        optimizers[1].zero_grad()
        loss = -judge(made).mean()
        loss.backward()
        optimizers[1].step()
        return loss

    return step, loader()


def streamed() -> tuple[Callable, Iterable]:
    """Return a step, and batches of a generator that makes them with NumPy."""

    def batches():
        random = numpy.random.default_rng(1)
        while True:
            images = torch.from_numpy(random.standard_normal((BATCH, 1, SIDE, SIDE), numpy.float32))
            yield images, torch.from_numpy(random.integers(10, size=BATCH))

    return plain(network())[0], batches()


def distributed(model: nn.Module) -> nn.Module:
    """Return a network wrapped for a group of one process."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    return nn.parallel.DistributedDataParallel(model)


def ratio(times: list[float], samples: list[float]) -> float:
    """Return the last measured rate over that of a stop-watch, from the time after each step and the samples in it."""
    late = next(number for number, one in enumerate(times) if one > times[0] + WARM_UP_SECONDS)
    return loop.made[-1].rate().samples_per_second * (times[-1] - times[late]) / sum(samples[late + 1 :])


def of_step(step: Callable, batches: Iterable) -> Callable[[], float]:
    """Return a function that measures a step and returns the ratio."""

    def measured() -> float:
        times, samples = [], []

        def watched(batch):
            result = step(batch)
            times.append(time.perf_counter())
            samples.append(len(batch[0]))
            return result

        with contextlib.redirect_stdout(io.StringIO()):
            benchbook.measure(watched, batches, BATCH, window_seconds=0.5, most_seconds=SECONDS)
        return ratio(times, samples)

    return measured


def of_fit(fit: Callable[[list], None], make: type, base: type, hook: str) -> Callable[[], float]:
    """Return a function that measures a library's loop and returns the ratio.

    Args:
        fit: trains with a list of callbacks.
        make: makes the callback that measures.
        base: of the library's callbacks.
        hook: the method that the library calls after each step.
    """

    def measured() -> float:
        times = []
        tick = lambda *given, **named: times.append(time.perf_counter())  # noqa: E731
        with contextlib.redirect_stdout(io.StringIO()):
            fit([type("Watch", (base,), {hook: tick})(), make()])
        return ratio(times, [1000 / -(-1000 // BATCH)] * len(times))  # an epoch's last batch is short

    return measured


def styles() -> dict[str, Callable[[], Callable[[], float]]]:
    """Return, for each style, a function that makes the function which measures it."""
    found = {
        "plain": lambda: of_step(*plain(network())),
        "scaler and autocast": lambda: of_step(*plain(network(), half=True)),
        "torch.compile": lambda: of_step(*plain(network(), torch.compile)),
        "DistributedDataParallel": lambda: of_step(*plain(network(), distributed)),
        "gradient accumulation": lambda: of_step(*accumulated()),
        "two optimisers": lambda: of_step(*adversarial()),
        "own generator": lambda: of_step(*streamed()),
        "Keras fit": keras,
    }
    found |= {"Lightning": lightning} if importlib.util.find_spec("lightning") else {}
    return found | ({"Hugging Face's Trainer": trainer} if importlib.util.find_spec("transformers") else {})


def keras() -> Callable[[], float]:
    """Return the function for Keras's fit."""
    import keras
    from keras_meter import Speed

    layers = keras.layers
    model = keras.Sequential([keras.Input((SIDE, SIDE, 1)), layers.Conv2D(16, 3, activation="relu"), layers.Flatten()])
    model.add(layers.Dense(10))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images, labels = numpy.random.default_rng(1).random((1000, SIDE, SIDE, 1)), numpy.zeros(1000, int)

    def fit(callbacks) -> None:
        model.fit(images, labels, BATCH, epochs=9999, verbose=0, callbacks=callbacks)

    return of_fit(fit, lambda: Speed(BATCH), keras.callbacks.Callback, "on_train_batch_end")


def lightning() -> Callable[[], float]:
    """Return the function for Lightning's Trainer."""
    from lightning import pytorch as lightning
    from lightning_meter import Speed

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()

        def training_step(self, batch, place):
            return F.cross_entropy(self.network(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    def fit(callbacks) -> None:
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
        quiet |= {"enable_checkpointing": False}
        lightning.Trainer(max_epochs=9999, callbacks=callbacks, **quiet).fit(Module(), loader())

    return of_fit(fit, lambda: Speed(BATCH), lightning.Callback, "on_train_batch_end")


def trainer() -> Callable[[], float]:
    """Return the function for Hugging Face's Trainer."""
    import transformers
    from trainer_meter import Speed

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = network()

        def forward(self, images, labels):
            outputs = self.inside(images)
            return {"loss": F.cross_entropy(outputs, labels), "logits": outputs}

    lines = [{"images": images, "labels": label} for images, label in data()]

    def fit(callbacks) -> None:
        given = {"per_device_train_batch_size": BATCH, "use_cpu": True, "report_to": [], "save_strategy": "no"}
        arguments = transformers.TrainingArguments("/tmp/trainer", num_train_epochs=9999, disable_tqdm=True, **given)
        transformers.Trainer(Network(), arguments, train_dataset=lines, callbacks=callbacks).train()

    return of_fit(fit, Speed, transformers.TrainerCallback, "on_step_end")


def main() -> None:
    """Print the ratio of each style, with its range over the runs."""
    wanted = sys.argv[1:]
    for name, make in styles().items():
        if wanted and not any(word in name for word in wanted):
            continue
        measured = make()
        ratios = [measured() for _ in range(RUNS)]
        mean = float(numpy.exp(numpy.mean(numpy.log(ratios))))
        print(f"{name}: {mean:.3f} ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)


if __name__ == "__main__":
    main()
