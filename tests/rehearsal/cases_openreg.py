"""Torch workloads on torch's simulated accelerator, with its own protected memory and a stream that works by itself.

test_cases.py runs this file where BENCHBOOK_OPENREG names the folder of a built torch_mcpu, see CONTRIBUTING.md.
Operations that it lacks, or has wrong, are registered here. What it cannot do: GPT's weights on the host abort the
process, and its embedding takes a batch from the host.
"""

import functools
import itertools
import time
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import small
from benchbook import loop
from benchbook.frameworks import devices
from benchbook.machine.kinds import KINDS, Features
from benchbook.measuring import calibration, parity, protocol
from benchbook.measuring.protocol import Amount
from fakes import run

torch_mcpu = pytest.importorskip("torch_mcpu")
aten, library = torch.ops.aten, torch.library.Library("aten", "IMPL")
STUDIES = ("mnist_speedup", "vae_stability", "mobilenetv2_energy", "simclr_epochs", "resnet50_cost", "gpt_tokens")
KINDS["mcpu"] = Features(("torch",))  # as a new kind of device is added


def _convolution(images, weight, bias, *options):
    host = (part if part is None else part.cpu() for part in (images, weight, bias))
    return aten.convolution(*host, *options).to(images.device)


def _convolution_backward(gradient, images, weight, *options):
    host = (part.cpu() for part in (gradient, images, weight))
    found = aten.convolution_backward(*host, [weight.shape[0]] if options[-1][2] else None, *options)
    return tuple(part if part is None else part.to(images.device) for part in found)


def _batch_norm(images, weight, bias, mean, variance, *options):  # its own leaves the moving statistics as they are
    host = [part if part is None else part.cpu() for part in (images, weight, bias, mean, variance)]
    found = aten.native_batch_norm(*host, *options)
    for statistic, new in zip((mean, variance), host[3:], strict=True):
        if statistic is not None:
            statistic.copy_(new)
    return tuple(part.to(images.device) for part in found)


def _arange(*ends, dtype=None, device=None, **options):  # its own makes floats of whole numbers
    return torch.arange(*ends, dtype=dtype).to(device)


def _multiply(tensors, factors):
    for place, tensor in enumerate(tensors):
        tensor.mul_(factors[place] if isinstance(factors, (list, tuple)) else factors)


def _drawn(fill):
    """Return an in-place operation that draws on the host, for the accelerator's own cannot use its generator."""
    return lambda tensor, *numbers, generator=None: tensor.copy_(
        fill(torch.empty(tensor.shape, dtype=tensor.dtype), *numbers)
    )


for _name, _function in {
    "random_.from": _drawn(torch.Tensor.random_),
    "normal_": _drawn(torch.Tensor.normal_),
    "convolution_overrideable": _convolution,
    "convolution_backward_overrideable": _convolution_backward,
    "native_batch_norm": _batch_norm,
    "rsub.Scalar": lambda tensor, number, alpha=1: tensor.mul(-alpha).add(number),
    "arange": _arange,
    "arange.start": _arange,
    "arange.start_step": _arange,
    "_foreach_mul_.Scalar": _multiply,
    "_foreach_mul_.ScalarList": _multiply,
    "_foreach_mul_.Tensor": _multiply,  # clips gradients
}.items():
    with warnings.catch_warnings(action="ignore"):  # it takes the place of the accelerator's own
        library.impl(_name, _function, "PrivateUse1", allow_override=True)


@pytest.fixture(autouse=True)
def device():
    torch.manual_seed(0)
    return devices.pick("best")


def build(study, device):
    return small.build(study, device) if study == "gpt_tokens" else small.build_either_way(study, device)


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_is_checked_warmed_up_measured_and_restored(study, device, tmp_path):
    workload = build(study, device)
    assert {part.device.type for part in workload.model.parameters()} == {"mcpu"}
    record = run(tmp_path)
    verdict = parity.check(workload, record, 1)
    assert verdict.passed, verdict.reason
    protocol.warm_up(workload, record, 1)
    plan = Amount(num_repeats=2, num_windows=1, samples_per_window=2 * workload.batch_size)
    trained = protocol.measure_windows(workload, record, plan).query("phase == 'train'")
    assert trained["loss"].iloc[0] == pytest.approx(trained["loss"].iloc[1], rel=1e-4)
    assert set(trained["status"]) == {"ok"}


class Waits(TorchDispatchMode):
    """Counts what reads a number of the device's, for which the host waits."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        self.count += operation.overloadpacket is aten._local_scalar_dense and arguments[0].device.type == "mcpu"
        return operation(*arguments, **(named or {}))


READS, PLACES = ("none", "loss read in each step"), ("batch on the host", "weights on the host")


@pytest.mark.parametrize(
    ("study", "fault"),
    [(study, fault) for study in STUDIES for fault in (READS if study == "gpt_tokens" else READS + PLACES)],
)
def test_a_fault_of_placement_or_an_early_read_is_found(study, fault, device, monkeypatch):
    workload = build(study, device)
    batches = [workload.to_device(batch) for batch in itertools.islice(workload.batches(0), 2)]
    workload.step(batches[0])
    if fault == "weights on the host":
        workload.model.cpu()
    elif fault == "batch on the host":
        batches = [tuple(part.cpu() for part in batch) for batch in batches]
        monkeypatch.setattr(workload, "to_device", lambda batch: batch)
    elif fault == "loss read in each step":
        step = workload.step
        workload.step = lambda batch: (loss := step(batch), loss.item())[0]
    if fault in PLACES:
        with pytest.raises(RuntimeError):
            workload.step(batches[1])
        return
    with Waits() as waits:
        workload.step(batches[1])
    assert waits.count == (fault == "loss read in each step")


def test_a_wait_that_does_not_wait_or_waits_for_another_stream_is_found(device):
    assert calibration.check_synchronize(device) < calibration.MOST_REMAINING
    other = torch.mcpu.Stream()
    for wrong in (lambda device, last: None, lambda device, last: other.synchronize()):
        with pytest.raises(calibration.NotSynchronized):
            calibration.check_synchronize(device, synchronize=wrong)


@pytest.mark.parametrize("study", [study for study in STUDIES if study != "resnet50_cost"])  # which repeats one batch
def test_a_buffer_that_is_used_before_its_new_batch_has_come_is_found(study, device, tmp_path, monkeypatch):
    workload = build(study, device)
    copy, stale = workload.to_device, []

    def to_device(batch):
        stale.append(copy(batch))
        return stale.pop(0) if len(stale) > 1 else stale[0]  # the batch before

    monkeypatch.setattr(workload, "to_device", to_device)
    assert not parity.check(workload, run(tmp_path), 2).passed


@pytest.mark.parametrize("waits", [True, False])
def test_a_loop_of_ones_own_has_its_rate_only_if_its_windows_wait(waits, device, monkeypatch):
    matrix = torch.rand(1024, 1024).to("mcpu")

    def step(batch):
        return functools.reduce(lambda product, _: product @ matrix, range(4), matrix)

    step(None).cpu()
    started = time.perf_counter()
    step(None).cpu()
    seconds = time.perf_counter() - started
    if not waits:
        monkeypatch.setattr(type(device.backend), "synchronize", lambda self, device, last=None: None)
    monkeypatch.setattr(loop.stretch, "WARM_UP_SECONDS", 0.0)
    rate = loop.measure(step, iter([None] * 40), 1, most_seconds=1e-9)  # of a step
    assert (rate.samples_per_second < 2 / seconds) is waits
