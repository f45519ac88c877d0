"""Compare measured loops with a stop-watch in the same loop: `make bench STUDIES=loops`.

Each loop is here once. `tests/test_loops.py` runs it with steps that take a known time; here it
is real, and the stop-watch reads the clock after each step: the result is the measured rate over
the stop-watch's in the same stretch, whose median of three should be within 7 %. Loops of
libraries need `pip install -e .[loops]`.
"""

import contextlib
import importlib.util
import io
import itertools
import os
import platform
import queue
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional as F

import benchbook
from benchbook.loop import callbacks
from benchbook.loop import meter as loop
from benchbook.loop.rate import Rate
from benchbook.machine.launch import LOOPBACK

BATCH, RUNS, SECONDS = 32, 3, 8.0
sizes = SimpleNamespace(width=768, side=28)  # of the networks; tests make them small
Spend = Callable[[float], None]  # takes units of time in a test, and nothing here


@dataclass
class Loop:
    """A loop to measure.

    Attributes:
        step, batches, samples, options: of `benchbook.measure`.
        samples_per_unit: in the long run, if each step spends the units of time that it says.
        refusal: a part of the message, where the loop is refused.
        doubt: the beginning of what is said of a rate that counts too many samples.
        fit: trains with a callback, in place of the step.
        callback: makes that callback from `options`.
    """

    step: Callable[[Any], Any] | None = None
    batches: Iterable = (None,)
    samples: Any = BATCH
    samples_per_unit: float = BATCH
    options: dict = field(default_factory=dict)
    refusal: str = ""
    doubt: str = ""
    fit: Callable[[Any], None] | None = None
    callback: Callable[[], Any] | None = None


def network() -> nn.Module:
    """Return a network for square images."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(sizes.side**2, sizes.width), nn.ReLU(), nn.Linear(sizes.width, 10)
    )


def images(count: int = 1024) -> torch.utils.data.TensorDataset:
    """Return random images with labels."""
    return torch.utils.data.TensorDataset(
        torch.randn(count, 1, sizes.side, sizes.side), torch.randint(10, (count,))
    )


def loader(count: int = 1024, **options) -> torch.utils.data.DataLoader:
    """Return images in batches."""
    return torch.utils.data.DataLoader(images(count), BATCH, **options)


def trained(
    model: nn.Module, spend: Spend, units: float = 1.0, optimizer: type = torch.optim.SGD
) -> Callable:
    """Return a plain step."""
    updates = optimizer(model.parameters(), 0.01)

    def step(batch):
        updates.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        updates.step()
        spend(units)
        return loss

    return step


def plain(spend: Spend) -> Loop:
    return Loop(trained(network(), spend), loader())


def accumulated(count: int, dear: float, spend: Spend) -> Loop:
    """Update the weights after `count` batches, with clipping and a schedule; the update costs
    `dear` batches."""
    model, number = network(), itertools.count(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)

    def step(batch):
        loss = F.cross_entropy(model(batch[0]), batch[1]) / count
        loss.backward()
        spend(1)
        if next(number) % count == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            spend(dear)
        return loss

    return Loop(step, loader(), BATCH, count * BATCH / (count + dear), {"every": count})


def now_and_then(
    every: int, units: float, work: Callable[[nn.Module], None], spend: Spend, **options
) -> Loop:
    """Train, and do other work after so many steps."""
    model, number = network(), itertools.count(1)
    inner = trained(model, spend)

    def step(batch):
        loss = inner(batch)
        if next(number) % every == 0:
            work(model)
            spend(units)
        return loss

    return Loop(step, loader(), BATCH, every * BATCH / (every + units), {"every": every} | options)


def saved(model: nn.Module) -> None:
    """Write a checkpoint, as slow as a larger network's."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(10):
            torch.save(model.state_dict(), Path(folder, "weights"))


def checkpoint(spend: Spend) -> Loop:
    return now_and_then(20, 10, saved, spend)


def cycles_too_long(spend: Spend) -> Loop:
    made = now_and_then(100_000, 1, lambda model: None, spend, most_seconds=2.0)
    made.refusal = "two cycles take about"
    return made


def short_batch_in_a_number(spend: Spend) -> Loop:
    return Loop(
        trained(network(), spend),
        loader(100),
        doubt="batches had 4 to 32 rows, and samples is 32",
    )


def short_batch(spend: Spend) -> Loop:
    return Loop(
        trained(network(), spend), loader(100), lambda batch: len(batch[0]), 100 / 4, {"every": 4}
    )


def bucketed(spend: Spend) -> Loop:
    """Classify texts of several lengths: batches hold as many tokens, so that the number of
    texts varies."""
    model = nn.Sequential(nn.EmbeddingBag(100, sizes.width), nn.Linear(sizes.width, 10))
    batches = [
        (torch.randint(100, (640 // length, length)), torch.randint(10, (640 // length,)))
        for length in (10, 20, 40, 80)
    ]
    mean = sum(len(batch[1]) for batch in batches) / 4
    return Loop(trained(model, spend), batches, lambda batch: len(batch[1]), mean, {"every": 4})


def time_major(spend: Spend) -> Loop:
    """Train a recurrent network on (time, batch, feature), where the time varies."""
    model = nn.GRU(8, sizes.width // 8 + 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(batch):
        optimizer.zero_grad()
        loss = model(batch)[0].pow(2).mean()
        loss.backward()
        optimizer.step()
        spend(1)
        return loss

    return Loop(
        step, [torch.randn(length, BATCH, 8) for length in (5, 20, 80)], BATCH, BATCH, {"every": 3}
    )


def graphs(spend: Spend) -> Loop:
    """Train on graphs that are concatenated along their nodes: 32 graphs in each batch."""
    model = nn.Linear(8, sizes.width)
    inner = trained(nn.Sequential(model, nn.ReLU(), nn.Linear(sizes.width, 10)), spend)
    nodes = (64, 320, 640)
    batches = [
        {"x": torch.randn(count, 8), "y": torch.randint(10, (count,)), "graphs": BATCH}
        for count in nodes
    ]
    return Loop(
        lambda batch: inner((batch["x"], batch["y"])),
        batches,
        lambda batch: batch["graphs"],
        BATCH,
        {"every": 3},
    )


def list_of_images(spend: Spend) -> Loop:
    """Train on lists of images, with a short last batch, as detectors do."""
    pictures, model = (
        [torch.randn(3, sizes.side, sizes.side) for _ in range(7)],
        nn.LazyConv2d(4, 3),
    )
    model(pictures[0][None])
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(batch):
        optimizer.zero_grad()
        losses = [model(picture[None]).pow(2).mean() for picture in batch]
        sum(losses).backward()
        optimizer.step()
        spend(1)
        return losses

    return Loop(step, [pictures[:4], pictures[4:]], len, 7 / 2, {"every": 2})


def compiled(spend: Spend) -> Loop:
    """Compile the network; the last batch of an epoch is short, so that a second shape is
    compiled in the warm-up."""
    model = torch.compile(network(), backend="eager" if sizes.width < 100 else "inductor")
    return Loop(
        trained(model, spend), loader(100), lambda batch: len(batch[0]), 100 / 4, {"every": 4}
    )


def returns_outputs(spend: Spend) -> Loop:
    """Return all outputs of the step, which nothing may keep."""
    inner = trained(network(), spend)
    return Loop(lambda batch: (inner(batch), torch.zeros(1000, sizes.width)), loader())


def workers(spend: Spend) -> Loop:
    return Loop(trained(network(), spend), loader(num_workers=1, persistent_workers=True))


def generator_that_ends(spend: Spend) -> Loop:
    return Loop(trained(network(), spend), itertools.islice(itertools.cycle(loader()), 600))


def prefetched(spend: Spend) -> Loop:
    """Take batches from a thread's queue."""
    ready = queue.Queue(4)

    def fill():
        for batch in itertools.cycle(loader()):
            ready.put(batch)

    threading.Thread(target=fill, daemon=True).start()
    return Loop(trained(network(), spend), iter(ready.get, None))


def policy_gradient(spend: Spend) -> Loop:
    """Play episodes of several lengths in the step itself; a sample is a move."""
    model, lengths = nn.Linear(4, 2), itertools.cycle((5, 10, 30))
    optimizer, moves = torch.optim.Adam(model.parameters()), []

    def step(batch):
        moves.append(next(lengths))
        optimizer.zero_grad()
        loss = -sum(F.log_softmax(model(torch.randn(4)), 0)[0] for _ in range(moves[-1]))
        loss.backward()
        optimizer.step()
        spend(moves[-1] / 15)
        return loss

    return Loop(step, [None], lambda batch: moves[-1], 15, {"every": 3})


def distributed(spend: Spend) -> Loop:
    """Wrap the network for a group of one process; two ranks are in `RANKS`."""
    if not torch.distributed.is_initialized():
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
        torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    return Loop(trained(nn.parallel.DistributedDataParallel(network()), spend), loader())


def numpy_alone(spend: Spend) -> Loop:
    """Train without a framework."""
    weights, random = numpy.zeros((sizes.side**2, 10)), numpy.random.default_rng(1)
    pictures = random.standard_normal((BATCH, sizes.side**2))

    def step(batch):
        weights[:] -= 0.01 * pictures.T @ (pictures @ weights - 1)
        spend(1)

    return Loop(step, [None])


def jax_donated(spend: Spend) -> Loop:
    import jax

    pictures = (
        numpy.random.default_rng(1).standard_normal((BATCH, sizes.side**2)).astype(numpy.float32)
    )

    @jax.jit
    def loss(weights):
        return ((pictures @ weights) ** 2).mean()

    update = jax.jit(lambda weights: weights - 0.01 * jax.grad(loss)(weights), donate_argnums=0)
    state = [jax.numpy.ones((sizes.side**2, sizes.width))]

    def step(batch):
        state[0] = update(state[0])
        spend(1)
        return loss(state[0])

    return Loop(step, [None])


def mlx_cpu(spend: Spend) -> Loop:
    """Compute lazily, and evaluate the weights in each step."""
    import mlx.core as mx

    pictures, state = (
        mx.random.normal((BATCH, sizes.side**2)),
        [mx.ones((sizes.side**2, sizes.width))],
    )
    update = mx.grad(lambda weights: ((pictures @ weights) ** 2).mean())

    def step(batch):
        state[0] = state[0] - 0.01 * update(state[0])
        mx.eval(state[0])
        spend(1)
        return state[0]

    return Loop(step, [None])


def tensorflow_loop(spend: Spend) -> Loop:
    import tensorflow

    weights = tensorflow.Variable(tensorflow.ones((sizes.side**2, 10)))
    pictures = tensorflow.random.normal((BATCH, sizes.side**2))

    @tensorflow.function
    def update():
        with tensorflow.GradientTape() as tape:
            loss = tensorflow.reduce_mean((pictures @ weights) ** 2)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return loss

    def step(batch):
        loss = update()
        spend(1)
        return loss

    return Loop(step, [None])


def keras_model(spend: Spend, **options) -> Any:
    """Return a model whose steps spend a unit, and those of its validation ten."""
    import keras

    class Model(keras.Sequential):
        def train_step(self, data):
            spend(1)
            return super().train_step(data)

        def test_step(self, data):
            spend(10)
            return super().test_step(data)

    model = Model(
        [keras.Input((sizes.side**2,)), keras.layers.Dense(sizes.width), keras.layers.Dense(10)]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    return model


def keras_fit(count: int, spend: Spend, **options) -> Loop:
    model = keras_model(spend, run_eagerly=sizes.width < 100, **options)  # a graph would spend once
    pictures, labels = numpy.zeros((count, sizes.side**2), numpy.float32), numpy.zeros(count, int)

    def fit(callback) -> None:
        others = {"validation_data": (pictures[:64], labels[:64]), "shuffle": False, "verbose": 0}
        model.fit(pictures, labels, BATCH, epochs=9999, callbacks=[callback], **others)

    steps = -(-count // BATCH)
    return Loop(
        samples_per_unit=count / steps,
        fit=fit,
        callback=lambda **given: callbacks.keras(**given),
        options={"every": steps},
    )


def keras_executions(spend: Spend) -> Loop:
    return keras_fit(640, spend, steps_per_execution=20)


def keras_short_batch(spend: Spend) -> Loop:
    return keras_fit(100, spend)


def lightning_fit(spend: Spend, accumulate: int = 1) -> Loop:
    from lightning import pytorch as lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()

        def training_step(self, batch, place):
            spend(1)
            return F.cross_entropy(self.network(batch[0]), batch[1])

        def validation_step(self, batch, place):
            spend(10)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    def fit(callback) -> None:
        quiet = {
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "logger": False,
            "accelerator": "cpu",
        }
        quiet |= {"enable_checkpointing": False, "accumulate_grad_batches": accumulate}
        trainer = lightning.Trainer(max_epochs=9999, callbacks=[callback], **quiet)
        trainer.fit(Module(), loader(256), loader(64))

    return Loop(fit=fit, callback=lambda **given: callbacks.lightning(BATCH, **given))


def lightning_accumulated(spend: Spend) -> Loop:
    return lightning_fit(spend, 4)


def transformers_trainer(spend: Spend) -> Loop:
    import transformers

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = network()

        def forward(self, images, labels):
            spend(1 if self.training else 10)
            outputs = self.inside(images)
            return {"loss": F.cross_entropy(outputs, labels), "logits": outputs}

    lines = [{"images": picture, "labels": label} for picture, label in images(100)]

    def fit(callback) -> None:
        given = {
            "per_device_train_batch_size": BATCH,
            "gradient_accumulation_steps": 2,
            "use_cpu": True,
        }
        given |= {
            "eval_strategy": "steps",
            "eval_steps": 3,
            "save_strategy": "no",
            "report_to": [],
            "logging_steps": 999,
        }
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                folder, num_train_epochs=9999, disable_tqdm=True, **given
            )
            sets = {"train_dataset": lines, "eval_dataset": lines[:64]}
            transformers.Trainer(Network(), arguments, callbacks=[callback], **sets).train()

    return Loop(samples_per_unit=100 / 4, fit=fit, callback=callbacks.trainer, options={"every": 2})


LOOPS: dict[str, Callable[[Spend], Loop]] = {
    "plain": plain,
    "accumulation 4": lambda spend: accumulated(4, 4, spend),
    "accumulation 64": lambda spend: accumulated(64, 32, spend),
    "checkpoint": checkpoint,
    "cycles that do not fit": cycles_too_long,
    "short last batch, in a number": short_batch_in_a_number,
    "short last batch": short_batch,
    "bucketed lengths": bucketed,
    "time-major": time_major,
    "graphs": graphs,
    "list of images": list_of_images,
    "torch.compile, short last batch": compiled,
    "returns its outputs": returns_outputs,
    "workers": workers,
    "generator that ends": generator_that_ends,
    "prefetching thread": prefetched,
    "policy gradient": policy_gradient,
    "DistributedDataParallel": distributed,
    "NumPy": numpy_alone,
    "JAX, donated buffers": jax_donated,
    "TensorFlow": tensorflow_loop,
    "Keras, steps_per_execution, validation": keras_executions,
    "Keras, short last batch": keras_short_batch,
    "Lightning, validation": lightning_fit,
    "Lightning, accumulation": lightning_accumulated,
    "Trainer, accumulation, validation": transformers_trainer,
    "MLX": mlx_cpu,
}
NEEDS = {
    "JAX": "jax",
    "TensorFlow": "tensorflow",
    "Keras": "keras",
    "Lightning": "lightning",
    "MLX": "mlx",
}
NEEDS |= {"Trainer": "transformers"}


def needed(name: str) -> str:
    """Return the package that a loop needs besides torch and NumPy; empty: none."""
    return NEEDS.get(name.split(",")[0].split()[0], "")


def run(made: Loop, **options) -> Rate:
    """Measure a loop, by its step or in its library, and return the rate."""
    given = options | made.options
    if made.step:
        return benchbook.measure(made.step, made.batches, made.samples, **given)
    made.fit(made.callback(**given))
    return loop.meters[-1].rate()


def ratio(build: Callable[[Spend], Loop]) -> float:
    """Return the rate of a real loop over that of a stop-watch in the same stretch, which stops
    for validation, too."""
    made, watch, tick, paused, pauses = (
        build(lambda units: None),
        [],
        loop.Meter.tick,
        loop.Meter.paused,
        [],
    )

    def watched(meter, last=None, batch=None, steps=1):
        number = meter.samples(batch) if callable(meter.samples) else meter.samples * steps
        if hasattr(last, "block_until_ready"):  # JAX's steps return before they are computed
            last.block_until_ready()
        done = time.perf_counter()
        is_over = tick(meter, last, batch, steps)
        watch.append((meter._steps, done, time.perf_counter(), number))
        return is_over

    @contextlib.contextmanager
    def left_out(meter):
        began = time.perf_counter()
        with paused(meter):
            yield
        pauses.append((began, time.perf_counter()))

    loop.Meter.tick, loop.Meter.paused = watched, left_out
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            rate = run(made, most_seconds=SECONDS)
    finally:
        loop.Meter.tick, loop.Meter.paused = tick, paused
    first = loop.meters[-1]._first
    inside = [each for each in watch if first <= each[0] <= first + rate.steps]
    began, ended = inside[0][2], inside[-1][1]
    seconds = (
        ended - began - sum(end - begin for begin, end in pauses if began <= begin and end <= ended)
    )
    return rate.samples_per_second * seconds / sum(each[3] for each in inside[1:])


RANKS = """\
import sys, time
import torch
from torch import nn
import benchbook
from benchbook.loop import meter as loop
from benchbook.loop import stretch
from benchbook.machine import context, processes
stretch.WARM_UP_SECONDS, stretch.STRETCH_SECONDS, stretch.STRETCH_STEPS = (float(each) for each in sys.argv[1:4])
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8)) if sys.argv[4] == "ddp" else nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
begun, done, tick = [], [], loop.Meter.tick

def step(batch):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.01 * (1 + rank))
    return loss

def watched(meter, *given):
    done.append(time.perf_counter())
    is_over = tick(meter, *given)
    begun.append(time.perf_counter())
    return is_over

loop.Meter.tick = watched
rate = benchbook.measure(step, iter(range(int(sys.argv[5 + rank]))), 4 * (1 + rank))
if rank == 1:  # the slower one
    first = loop.meters[0]._first
    print("OWN", len(set(context.current().ranks) & {each.pid for each in processes.own()}))
    print("RATIO", rate.samples_per_second * (done[-1] - begun[first - 1]) / (12 * rate.steps))
"""


def run_ranks(
    folder: Path, warm_up: float, seconds: float, steps: int, kind: str, *most: int
) -> str:
    """Run a loop in two ranks by torchrun, and return what they print.

    Args:
        folder: for the script.
        warm_up, seconds, steps: of the measurement.
        kind: ddp, or plain: ranks that do not wait for each other by themselves.
        most: the steps of each rank.
    """
    (folder / "ranks.py").write_text(RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [
        "--local-addr=127.0.0.1",
        str(folder / "ranks.py"),
        str(warm_up),
        str(seconds),
        str(steps),
        kind,
    ]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": LOOPBACK[platform.system()]}
    done = subprocess.run(
        [*command, *map(str, most)],
        capture_output=True,
        text=True,
        timeout=180,
        env=environment,
        check=False,
    )
    return done.stdout + done.stderr


def main() -> None:
    """Print the median ratio of each loop with its range; arguments choose loops by parts of
    their names."""
    warnings.filterwarnings("ignore")
    for name, build in LOOPS.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        if needed(name) and importlib.util.find_spec(needed(name)) is None:
            print(f"{name}: skipped (no {needed(name)})", flush=True)
            continue
        try:
            ratios = sorted(ratio(build) for _ in range(RUNS))
        except ValueError as refused:
            print(f"{name}: refused ({refused})", flush=True)
            continue
        print(f"{name}: {ratios[RUNS // 2]:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})", flush=True)
    if not sys.argv[1:] or "ranks" in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(20):
                printed = run_ranks(Path(folder), 1.0, 3.0, 200, "ddp", 9999, 9999)
                lines = [line for line in printed.splitlines() if line.startswith("RATIO")]
                print(
                    f"two ranks, run {number + 1} of 20: {' '.join(lines) or printed}", flush=True
                )


if __name__ == "__main__":
    main()
