"""torch's switches and scalers: every switch can be read in every mode, and an overflow leaves
nothing behind."""

import functools
import itertools
from dataclasses import replace

import pytest
import torch

from benchbook import datasets
from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.frameworks.torch import training as runtime
from benchbook.frameworks.torch.training import TorchWorkload
from benchbook.frameworks.workload import Settings
from benchbook.measuring import parity, sensors, tuned
from benchbook.measuring.window import train_window
from benchbook.studies.mnist_speedup import plan as mnist
from made import plants
from made.fakes import CPU, run

# What torch, its compiler and its libraries read; the old and the new ones exclude each other in
# torch 2.10 and 2.11.
READERS = {
    "torch": torch.get_float32_matmul_precision,
    "cublas": lambda: torch.backends.cuda.matmul.allow_tf32,
    "cudnn": lambda: torch.backends.cudnn.allow_tf32,
    "matmul": lambda: torch.backends.cuda.matmul.fp32_precision,
    "conv": lambda: torch.backends.cudnn.conv.fp32_precision,
    "rnn": lambda: torch.backends.cudnn.rnn.fp32_precision,
    "benchmark": lambda: torch.backends.cudnn.benchmark,
}
MODES = [
    Settings(precision, autotuned=tuned)
    for precision in ("fp32", "tf32", "amp_bf16")
    for tuned in (False, True)
]


@pytest.fixture(autouse=True)
def _switches_are_put_back():
    runtime.switch(Settings())
    with torch.random.fork_rng(devices=[]):
        yield
    runtime.switch(Settings())


def read() -> dict:
    return {name: ask() for name, ask in READERS.items()}


@pytest.mark.parametrize(("first", "then"), list(itertools.product(MODES, MODES)))
def test_every_switch_can_be_read_in_every_mode_whatever_came_before(first, then):
    runtime.switch(first)
    runtime.switch(then)
    reduced = then.precision == "tf32"
    switches = read()
    assert (switches["torch"], switches["matmul"]) == (
        ("high", "tf32") if reduced else ("highest", "ieee")
    )
    assert switches["cublas"] == switches["cudnn"] == reduced
    assert {switches["conv"] == "tf32", switches["rnn"] == "tf32"} == {reduced}
    assert switches["benchmark"] == then.autotuned


def test_switches_that_somebody_else_set_the_new_way_are_read_again_afterwards():
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    runtime.switch(Settings())
    assert read()["cublas"] is read()["cudnn"] is False


def test_each_window_enters_the_arithmetic_of_its_own_workload(monkeypatch):
    """A search times two workloads by turns; the one built last must not decide how both
    compute."""
    digits = datasets.load("digits")
    monkeypatch.setattr(Device, "has_units", lambda device, precision: True)
    seen = {}

    def build(settings):
        workload = mnist.Plan.build(
            digits, CPU, "tuned", data_resident=True, batch_size=4, settings=settings
        )
        step = workload.step
        seen[settings] = set()
        workload.step = lambda batch: seen[settings].add(read()["cublas"]) or step(batch)
        return workload

    monkeypatch.setattr(tuned, "TRIAL_SECONDS", 0.0)
    tuned.fastest(build, CPU, 60, 1, [{"precision": "tf32"}])
    assert seen == {Settings(): {False}, Settings("tf32"): {True}}
    workloads = [build(Settings("tf32")), build(Settings())]
    evaluated = []
    for workload in workloads:
        workload.test_batches = lambda: evaluated.append(read()["cublas"]) or iter([])
        workload.enter()
        with pytest.raises(ZeroDivisionError):
            workload.evaluate()
    assert evaluated == [True, False]


SGD = functools.partial(torch.optim.SGD, lr=0.1)
OPTIMIZERS = {
    "sgd": SGD,
    "momentum": functools.partial(SGD, momentum=0.9),
    "nesterov": functools.partial(SGD, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "momentum fused": functools.partial(
        SGD, momentum=0.9, weight_decay=5e-4, fused=True
    ),  # as plants.tiny
    "nesterov fused": functools.partial(SGD, momentum=0.9, nesterov=True, fused=True),
    "adam": torch.optim.Adam,
    "adam fused": functools.partial(torch.optim.Adam, fused=True),
    "adadelta": torch.optim.Adadelta,
}


def overflowing(optimizer: str) -> TorchWorkload:
    """Return a small network in amp_fp16 whose first steps overflow."""
    workload = plants.tiny()
    chosen = OPTIMIZERS[optimizer](workload.model.parameters())
    schedule = torch.optim.lr_scheduler.ConstantLR(chosen, factor=1.0)
    settings = Settings("amp_fp16", fused="fused" in optimizer)
    workload = replace(workload, optimizer=chosen, scheduler=schedule, settings=settings)
    workload.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    return workload


@pytest.fixture
def _memory_is_dirty(monkeypatch):
    """Let memory that is not initialised hold large numbers, as it may at any time."""
    monkeypatch.setattr(
        torch, "empty_like", lambda *given, **named: torch.full_like(*given, 1e25, **named)
    )


@pytest.mark.usefixtures("_memory_is_dirty")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_first_step_that_overflows_leaves_the_weights_and_the_momentum_alone(optimizer):
    workload = overflowing(optimizer)
    fresh = [part.detach().clone() for part in workload.model.parameters()]
    batch = next(workload.batches(0))
    workload.step(batch)
    assert workload.scaler.get_scale() == 2.0**39  # it did overflow
    assert all(
        torch.equal(part, start)
        for part, start in zip(workload.model.parameters(), fresh, strict=True)
    )
    for _ in range(40):
        workload.step(batch)
    assert max(part.abs().max().item() for part in workload.model.parameters()) < 1e3


@pytest.mark.usefixtures("_memory_is_dirty")
@pytest.mark.parametrize("fixed", [True, False])
def test_parity_goes_through_the_scaler_and_sees_what_an_overflow_leaves_behind(
    tmp_path, monkeypatch, fixed
):
    if not fixed:  # as torch makes momentum itself
        monkeypatch.setattr(
            "benchbook.frameworks.torch.training.initialise_momentum", lambda optimizer: None
        )
    workload = overflowing("momentum fused")
    verdict = parity.check(workload, run(tmp_path), 3)
    assert verdict.passed == fixed, verdict.reason


@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"
)  # torch's own
def test_fresh_weights_keep_the_switch_that_the_compiler_set_on_the_optimiser(monkeypatch):
    from torch._dynamo.utils import counters

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    settings = Settings(fused=True)
    digits = datasets.load("digits")
    workload = mnist.Plan.build(
        digits, CPU, "tuned", data_resident=True, batch_size=4, settings=settings
    )
    batches, fresh = list(itertools.islice(workload.batches(0), 3)), workload.snapshot()
    workload.optimizer.param_groups[0]["capturable"] = (
        True  # torch 2.10 and 2.11 do so in the first step on a GPU
    )
    losses = [float(workload.step(batch)) for batch in batches]
    compiled = counters["frames"]["ok"]
    assert workload.steps_taken() == 3
    workload.restore(fresh)
    assert [float(workload.step(batch)) for batch in batches] == losses
    assert counters["frames"]["ok"] == compiled > 0


@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"
)  # torch's own
@pytest.mark.parametrize("graphs", [False, True])
def test_compiled_code_computes_the_loss_but_under_graphs(monkeypatch, graphs):
    compiled = []

    def backend(module, _, **__):
        compiled.append(str(module.graph))
        return module.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    settings = Settings("amp_bf16", compiled=True, graphs=graphs)
    plain = plants.tiny("amp_bf16")
    own = replace(plants.tiny("amp_bf16"), settings=settings)
    losses = []
    for workload in (plain, own):
        torch.manual_seed(0)  # of its dropout
        losses.append([float(workload.step(batch)) for batch in workload.train_batches(0)])
    assert losses[0] == losses[1]
    assert any("cross_entropy" in code for code in compiled) == (not graphs)


def test_autotuning_and_graphs_are_tried_on_an_nvidia_gpu_and_nowhere_else():
    having = {
        kind: {"autotuned", "graphs"} & set().union(*tuned.candidates(Device(kind, "a chip")))
        for kind, features in devices.KINDS.items()
        if "torch" in features.frameworks
    }
    assert {kind: switches for kind, switches in having.items() if switches} == {
        "cuda": {"autotuned", "graphs"}
    }


@pytest.mark.parametrize(("graphs", "mode"), [(False, None), (True, "reduce-overhead")])
def test_a_graph_of_the_gpu_is_what_torch_compiles_to_with_less_overhead(monkeypatch, graphs, mode):
    asked, steps = [], []
    monkeypatch.setattr(
        torch, "compile", lambda model, mode=None, dynamic=None: asked.append(mode) or model
    )
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: steps.append("marked"))
    digits = datasets.load("digits")
    settings = Settings(compiled=True, graphs=graphs)
    workload = mnist.Plan.build(
        digits, CPU, "tuned", data_resident=True, batch_size=4, settings=settings
    )
    train_window(workload, sensors.NO_SENSOR, itertools.islice(workload.batches(0), 3))
    assert asked == ([mode] if graphs else [None, None])  # the network, and all with the loss
    assert len(steps) == (3 if graphs else 0)
