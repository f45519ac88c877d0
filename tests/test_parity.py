"""Parity: right runs pass, a small fault in any one layer fails, and what is not finite is a row, not an exception."""

import copy

import numpy
import pytest
import torch

from benchbook import datasets, parity, records
from benchbook.devices import Device
from benchbook.studies.mnist_speedup import workload as mnist
from benchbook.studies.vae_stability import workload as vae
from fakes import CPU, run

MODULES = {"mnist": mnist, "vae": vae}


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


@pytest.fixture(autouse=True)
def _one_thread_and_own_random_state():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        yield
    torch.set_num_threads(threads)


@pytest.fixture
def record(tmp_path):
    return run(tmp_path)


class Fake:
    """Two layers whose loss falls by steps; `scale` multiplies gradients by name.

    `losses` are those at the reference's weights, `path` those at its own.
    """

    def __init__(self, scale=None, losses=(8.0, 4.0, 2.0), path=None, weights=1.0):
        self.scale, self.losses, self.path, self.weights = scale or {}, losses, path or losses, weights
        self.num_steps = self.num_loads = 0

    def parameters(self):
        return {"large": numpy.full((4, 4), self.weights), "small": numpy.full(4, self.weights)}

    def load(self, parameters):
        self.num_loads += 1

    def gradients(self, batch):
        gradients = {"large": numpy.arange(16.0).reshape(4, 4), "small": numpy.array([0.1, 0.2, 0.0, 0.1])}
        with numpy.errstate(invalid="ignore"):
            loss = self.losses[max(0, self.num_loads - 1)]
            return loss, {name: value * self.scale.get(name, 1) for name, value in gradients.items()}

    def step(self, batch):
        self.num_steps += 1
        return self.path[self.num_steps - 1]


def measured(record, subject, precision="fp32", num_steps=3):
    """Return rows and verdict of a fake device against a right one."""

    def make(device, wanted):
        return Fake() if wanted == "fp64" else copy.deepcopy(subject)

    rows = parity.measure(make, [([0, 0],)] * 3, record, CPU, precision, num_steps)
    return rows, parity.verdict(rows)


def test_a_gradient_of_nothing_is_rounding_on_the_device_and_more_than_rounding_is_judged():
    reference = {"kernel": numpy.ones(4), "bias": numpy.full(4, 1e-16)}
    for share, judged in ((1e-5, 1), (1e-2, 2)):
        near = parity.compare({"kernel": numpy.ones(4), "bias": numpy.full(4, share)}, reference, 1e-6)
        assert near["layers_judged"] == judged


def test_rows_are_one_a_step_with_both_losses(record):
    record.common["settings"] = {"seed": 1}
    rows, verdict = measured(record, Fake(losses=(8.0, 4.002, 2.0)))
    settings = rows["settings"].tolist()
    assert list(rows["phase"]) == ["parity"] * 3
    assert list(rows["loss"]) == [8.0, 4.002, 2.0]
    assert list(rows["samples"]) == [2] * 3
    assert [setting["reference_loss"] for setting in settings] == [8.0, 4.0, 2.0]
    assert [setting["step"] for setting in settings] == [1, 2, 3]
    assert {setting["seed"] for setting in settings} == {1}
    assert ["gradient_cosine" in setting for setting in settings] == [True, False, False]
    assert verdict.passed
    assert verdict.num_steps == 3
    assert rows.reset_index(drop=True).equals(records.read(record.path))


@pytest.mark.parametrize(
    ("precision", "error", "passed"),
    [("fp32", 0.9e-3, True), ("fp32", 1.1e-3, False), ("tf32", 0.9e-2, True), ("tf32", 1.1e-2, False)]
    + [(name, 2.9e-2, True) for name in ("bf16", "fp16", "amp_bf16", "amp_fp16")]
    + [(name, 3.1e-2, False) for name in ("bf16", "fp16", "amp_bf16", "amp_fp16")],
)
def test_a_loss_may_be_off_by_what_the_precision_allows(record, precision, error, passed):
    rows, verdict = measured(record, Fake(losses=(8.0, 4.0 * (1 + error))), precision, 2)
    assert verdict.passed is passed
    assert parity.first_parting(rows) == (None if passed else 2)
    assert passed or "at step 2" in verdict.reason


def test_a_right_device_may_leave_the_path_of_float64_but_not_run_away(record, tmp_path):
    rows, verdict = measured(record, Fake(path=(8.0, 4.0, 2.5)))
    assert verdict.passed
    assert parity.first_parting(rows) == 3
    _, verdict = measured(run(tmp_path / "away"), Fake(path=(8.0, 4.0, 200.0)))
    assert (verdict.passed, verdict.reason) == (False, "own path off by 14 on average")


def test_the_loss_after_one_own_step_is_held_to_the_tolerance(record):
    _, verdict = measured(record, Fake(path=(8.0, 4.01, 2.0)))
    assert (verdict.passed, verdict.reason) == (False, "loss off by 0.0025 after one step of its own")


@pytest.mark.parametrize(("layer", "factor"), [("large", 1.1), ("small", 0.9)])
@pytest.mark.parametrize("precision", parity.TOLERANCES)
def test_a_tenth_off_in_one_layer_fails_though_the_losses_agree(record, precision, layer, factor):
    rows, verdict = measured(record, Fake({layer: factor}), precision, 1)
    assert not verdict.passed
    assert layer in verdict.reason
    assert rows["settings"].iloc[0]["worst_norm_ratio"] == pytest.approx(factor)
    assert rows["settings"].iloc[0]["worst_norm_ratio_layer"] == layer


def test_a_turned_layer_fails(record):
    _, verdict = measured(record, Fake({"small": -1.0}), "bf16")
    assert not verdict.passed
    assert "small: cosine -1.0000" in verdict.reason


def test_compare_of_two_gradients_is_known_by_hand():
    found = parity.compare(
        {"a": numpy.array([3.0, 0.0]), "b": numpy.array([0.0])}, {"a": numpy.array([3.0, 4.0]), "b": numpy.array([0.0])}
    )
    assert found["gradient_cosine"] == pytest.approx(0.6)
    assert found["gradient_norm_ratio"] == pytest.approx(0.6)
    assert (found["worst_cosine"], found["worst_cosine_layer"]) == (pytest.approx(0.6), "a")
    assert (found["layers"], found["layers_judged"]) == (2, 2)


def test_a_layer_without_gradient_is_judged_only_where_the_device_gives_it_one():
    reference = {"a": numpy.array([1.0]), "b": numpy.array([1e-12])}
    rounding = parity.compare({"a": numpy.array([1.0]), "b": numpy.array([-3e-8])}, reference, 1e-6)
    wrong = parity.compare({"a": numpy.array([1.0]), "b": numpy.array([0.5])}, reference, 1e-6)
    assert (rounding["layers_judged"], rounding["worst_norm_ratio"]) == (1, 1.0)
    assert (wrong["layers_judged"], wrong["worst_norm_ratio_layer"]) == (2, "b")


def test_compare_refuses_other_parameters():
    with pytest.raises(ValueError, match="parameters a; allowed: b"):
        parity.compare({"a": numpy.ones(1)}, {"b": numpy.ones(1)})


@pytest.mark.parametrize("loss", [numpy.nan, numpy.inf])
def test_a_loss_that_is_not_finite_ends_in_a_diverged_row(record, loss):
    rows, verdict = measured(record, Fake(losses=(8.0, loss, 2.0)))
    assert list(rows["status"]) == ["ok", "diverged"]
    assert (verdict.passed, verdict.reason, verdict.num_steps) == (False, "diverged at step 2", 2)
    assert parity.first_parting(rows) == 2


@pytest.mark.parametrize("factor", [numpy.nan, numpy.inf])
def test_a_gradient_that_is_not_finite_is_a_diverged_row(record, factor):
    rows, verdict = measured(record, Fake({"small": factor}))
    assert list(rows["status"]) == ["diverged"]
    assert not verdict.passed
    assert rows["settings"].iloc[0]["worst_norm_ratio"] is None


def test_what_a_device_lacks_is_an_unsupported_row_and_the_run_goes_on(record):
    def make(device, precision):
        raise NotImplementedError("no such unit")

    rows = parity.measure(make, [([0],)], record, CPU, "tf32", 1)
    assert list(rows["status"]) == ["unsupported"]
    assert not parity.verdict(rows).passed
    assert record.marker.exists()


def test_other_weights_too_few_batches_and_unknown_precisions_are_errors(record):
    with pytest.raises(ValueError, match="large begins with other weights"):
        measured(record, Fake(weights=1.1))
    with pytest.raises(ValueError, match="num_steps 4; allowed: 0 to 3"):
        measured(record, Fake(), num_steps=4)
    with pytest.raises(ValueError, match="precision 'fp8'; allowed: fp32, tf32"):
        measured(record, Fake(), "fp8")


def test_nothing_compared_is_not_passed(record):
    rows, verdict = measured(record, Fake(), num_steps=0)
    assert (len(rows), verdict) == (0, parity.Verdict(False, "not checked", 0))


def test_one_verdict_is_of_one_run_and_precision(record):
    measured(record, Fake(), "fp32")
    measured(record, Fake({"small": 1.1}), "bf16")
    rows = records.read(record.path)
    with pytest.raises(ValueError, match="2 runs or precisions; allowed: 1"):
        parity.verdict(rows)
    table = parity.verdicts(rows)
    assert dict(zip(table["precision"], table["passed"], strict=True)) == {"bf16": False, "fp32": True}
    assert list(table["num_steps"]) == [3, 3]


@pytest.mark.parametrize("precision", ["fp32", "amp_bf16"])
@pytest.mark.parametrize("name", MODULES)
def test_a_right_network_passes_and_nothing_that_follows_changes(digits, record, name, precision):
    workload = MODULES[name].build(digits, CPU, "controlled", data_resident=True, batch_size=16)
    before, state = workload.model.state_dict(), torch.get_rng_state()
    before = {name: value.clone() for name, value in before.items()}
    verdict = parity.check(workload, record, 3, precision)
    assert verdict.passed, verdict.reason
    assert all(torch.equal(value, before[name]) for name, value in workload.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not workload.optimizer.state


class Broken(Device):
    """The CPU, with an error planted."""


@pytest.mark.parametrize("precision", ["fp32", "amp_bf16"])
@pytest.mark.parametrize("name", MODULES)
def test_a_device_that_scales_one_weights_gradient_by_a_tenth_is_caught(digits, tmp_path, name, precision):
    workload = MODULES[name].build(digits, CPU, "controlled", data_resident=True, batch_size=8)
    broken, batches = Broken("cpu", "a broken processor"), workload.parity_batches(1)
    for layer, _ in workload.model.named_parameters():

        def make(device, wanted, layer=layer):
            subject = workload.parity_subject(device, wanted)
            if isinstance(device, Broken):
                dict(subject.model.named_parameters())[layer].register_hook(lambda gradient: gradient * 1.1)
            return subject

        verdict = parity.verdict(parity.measure(make, batches, run(tmp_path / layer), broken, precision, 1))
        assert not verdict.passed
        assert layer in verdict.reason


def test_reference_is_float64_with_dropout_off(digits):
    workload = mnist.build(digits, CPU, "controlled", data_resident=True, batch_size=8)
    subject, batch = workload.parity_subject(CPU, "fp64"), workload.parity_batches(1)[0]
    assert {parameter.dtype for parameter in subject.model.parameters()} == {torch.float64}
    assert subject.gradients(batch)[0] == subject.gradients(batch)[0] == subject.step(batch)
    assert workload.model.dropout1.p == 0.25


def test_small_gradients_of_float16_are_scaled_and_large_ones_do_not_overflow(digits):
    workload = vae.build(digits, CPU, "controlled", data_resident=True, batch_size=8)
    batch = workload.parity_batches(1)[0]
    subject, reference = (workload.parity_subject(CPU, precision) for precision in ("amp_fp16", "fp64"))
    found = parity.compare(subject.gradients(batch)[1], reference.gradients(batch)[1])
    assert found["worst_cosine"] > 0.99
    assert 1 <= subject.scaler.get_scale() < 2**16


def test_a_torch_subject_refuses_what_it_cannot_do(digits):
    workload = vae.build(digits, CPU, "controlled", data_resident=True)
    with pytest.raises(ValueError, match="precision 'fp8'; allowed: fp64, fp32"):
        workload.parity_subject(CPU, "fp8")
    with pytest.raises(NotImplementedError, match="tf32"):
        workload.parity_subject(CPU, "tf32")
