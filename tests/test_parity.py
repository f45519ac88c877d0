"""Parity: right runs pass, faults of training fail, and what is not finite is a row, not an
exception."""

import contextlib
import dataclasses
import functools
import math

import numpy
import pytest
import torch
from torch import nn

from benchbook import datasets
from benchbook.frameworks.plain import SGD, Adam, Plain
from benchbook.frameworks.torch import training
from benchbook.frameworks.workload import Settings
from benchbook.judging import agreement, verdicts
from benchbook.judging.agreement import TOLERANCES, Agreement
from benchbook.measuring import float64, parity, protocol
from benchbook.studies.mnist_speedup import plan as mnist
from benchbook.studies.vae_stability import plan as vae
from made import plants
from made.fakes import CPU, apple_gpu

PLANS = {"mnist": mnist.Plan, "vae": vae.Plan}
DEVICES = [CPU, apple_gpu("mps", "torch")]
RATE, MOMENTUM = 0.125, 0.5
ALLOWED = {"fp32": 1e-3, "tf32": 1e-2} | dict.fromkeys(
    ("bf16", "fp16", "amp_bf16", "amp_fp16"), 3e-2
)


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


def optimizer():
    return SGD(lambda step: RATE, MOMENTUM)


class Fake:
    """A workload of two layers whose loss falls by steps, and whose optimiser is right.

    A batch holds the number of its step. `losses` are those at the reference's weights, `path`
    those on its own; `scale` multiplies gradients by name.
    """

    device, schedule_step, resolution, precision = CPU, 0, 0.0, "fp32"
    num_samples = staticmethod(lambda batch: len(batch[0]))

    def __init__(self, scale=None, losses=(8.0, 4.0, 2.0), path=None):
        self.scale, self.losses, self.path = scale or {}, losses, path or losses
        self.plain = Plain(
            None, None, optimizer, 2, labels=lambda batch, place: numpy.ones(2, bool)
        )
        self.restart()

    @contextlib.contextmanager
    def compared(self):
        yield self

    def description(self):
        return {"precision": self.precision}

    def restart(self):
        self.optimizer, self.arrays = optimizer(), (right(0).weights, right(0).statistics)

    def batches(self, count):
        return [(numpy.full(2, number),) for number in range(count)]

    def to_host(self, batch):
        return batch

    def weights(self):
        return self.arrays[0]

    def statistics(self):
        return self.arrays[1]

    def load(self, weights, statistics):
        self.arrays = self.arrays[0] | weights, self.arrays[1] | statistics

    def step(self, batch, differentiated=True):
        number, (weights, statistics) = int(batch[0][0]), self.arrays
        with numpy.errstate(invalid="ignore"):
            gradients = {
                name: part * self.scale.get(name, 1)
                for name, part in right(number).gradients.items()
            }
            moved = self.optimizer.step(weights, gradients, 0)
        self.arrays = moved, {name: part + 1 for name, part in statistics.items()}
        return (self.losses if differentiated else self.path)[number], gradients

    def rounded(self, name, array):
        return array


def right(number):
    """Return a step of the reference: losses 8, 4 and 2."""
    weights = {"large": numpy.full((4, 4), 1.0 + number), "small": numpy.full(4, 1.0)}
    gradients = {
        "large": numpy.arange(16.0).reshape(4, 4),
        "small": numpy.array([0.1, 0.2, 0.0, 0.1]),
    }
    statistics = {"mean": numpy.zeros(3)}
    return float64.Step(weights, statistics, 8.0 / 2**number, gradients, {"mean": numpy.ones(3)})


@pytest.fixture
def measured(record, monkeypatch):
    """Return a function to rows and verdict of a fake workload against a right reference."""
    monkeypatch.setattr(float64, "follow", lambda *start: map(right, range(len(start[4]))))
    monkeypatch.setattr(parity, "_doubt", lambda *given: "")  # there is no network to repeat

    def take(fake, precision="fp32", num_steps=3, record=record):
        before, fake.precision = len(record.rows()), precision
        found = parity.check(fake, record, num_steps)
        return record.rows().iloc[before:], found

    return take


def statistics(mean=0.0, variance=1.0, prefix="running_", suffix=""):
    return {
        f"norm.{prefix}mean": numpy.full(4, mean),
        f"norm.{prefix}var{suffix}": numpy.full(4, variance),
    }


@pytest.mark.parametrize("names", [{}, {"prefix": "moving_", "suffix": "iance"}])
def test_a_moving_mean_of_nothing_is_measured_by_its_deviation_and_a_mean_that_stays_is_seen(names):
    before, right, rounding, moved = (
        statistics(*each, **names) for each in ((), (0.0, 0.9), (1e-8, 0.9), (0.01, 0.9))
    )
    assert parity.statistics_error(rounding, right, before)[0] < 1e-5
    assert parity.statistics_error(moved, right, before) == (
        pytest.approx(1.0, rel=0.1),
        next(iter(before)),
    )
    assert parity.statistics_error(before, moved, before)[0] > 0.5


def test_infinities_among_statistics_are_alike_or_an_error():
    mask = {"mask": numpy.array([[0.0, -numpy.inf], [0.0, 0.0]])}
    assert parity.statistics_error(mask, mask, mask) == (0.0, "mask")
    assert not numpy.isfinite(parity.statistics_error({"mask": numpy.zeros((2, 2))}, mask, mask)[0])


def test_a_unit_in_the_last_place_is_rounding_of_a_step_but_not_of_what_stays():
    subject, start = Fake(), {"kernel": numpy.full(4, 3.0), "frozen": numpy.full(4, 3.0)}
    subject.resolution = 2.0**-23
    right = start | {"kernel": start["kernel"] - 1e-6}
    for name, judged in (("kernel", ""), ("frozen", "frozen")):
        end = right | {name: right[name] + 2.0**-23}
        given = subject, SGD(lambda step: 0.01), start, end, {"kernel": numpy.full(4, 1e-4)}, 0
        error, worst = parity.update_error(*given)
        assert worst * (error > 0) == judged


def test_adams_step_of_a_gradient_that_is_rounding_is_passed_over_and_any_other_is_judged():
    start = {"kernel": numpy.ones(4), "offset": numpy.ones(4)}
    for size, judged in ((1e-8, ""), (1e-2, "offset")):
        gradients = {"kernel": numpy.ones(4), "offset": numpy.full(4, size)}
        turned = Adam(lambda step: 0.1).step(start, gradients | {"offset": -gradients["offset"]}, 0)
        error, worst = parity.update_error(
            Fake(), Adam(lambda step: 0.1), start, turned, gradients, 0
        )
        assert worst * (error > 1) == judged


@pytest.mark.parametrize(("share", "passed"), [(0.01, True), (0.05, False)])
def test_the_error_of_a_loss_of_nearly_nothing_is_a_share_of_the_first_loss(
    measured, share, passed
):
    rows, _ = measured(Fake())
    first, *others = rows["settings"]
    small = [
        other | {"reference_loss": 0.004, "same_weights_loss": 0.004 * (1 + share)}
        for other in others
    ]
    rows = rows.assign(settings=[first, *small], loss=[8.0, 0.004, 0.004])
    assert agreement.verdict(rows).passed is passed


def test_rows_are_one_a_step_with_both_losses(measured, record):
    record.common["settings"] = {"seed": 1}
    rows, verdict = measured(Fake(losses=(8.0, 4.002, 2.0, 1.0)), num_steps=4)
    settings = rows["settings"]
    assert rows[["phase", "loss", "samples"]].values.tolist() == [
        ["parity", n, 2] for n in (8.0, 4.002, 2.0, 1.0)
    ]
    told = [
        [each[name] for name in ("seed", "step", "reference_loss", "update_error")]
        for each in settings
    ]
    assert told == [[1, step, 16.0 / 2**step, 0.0] for step in (1, 2, 3, 4)]
    assert ["gradient_cosine" in setting for setting in settings] == [True, True, True, False]
    assert [setting.get("labels_checked") for setting in settings] == [8, None, None, None]
    assert (verdict.passed, verdict.num_steps) == (True, 4)
    assert rows.reset_index(drop=True).equals(record.rows())
    rows, verdict = measured(
        Fake(path=(8.0, 4.0, 2.5))
    )  # a right device may leave the path of float64
    assert verdict.passed
    assert agreement.verdicts(rows)["parted_at"].tolist() == [3]


@pytest.mark.parametrize(
    ("precision", "error", "passed"),
    [
        (name, factor * allowed, factor < 1)
        for name, allowed in ALLOWED.items()
        for factor in (0.97, 1.03)
    ],
)
def test_a_loss_may_be_off_by_what_the_precision_allows(measured, precision, error, passed):
    rows, verdict = measured(Fake(losses=(8.0, 4.0 * (1 + error))), precision, 2)
    assert verdict.passed is passed
    assert agreement.verdicts(rows)["parted_at"].dropna().tolist() == ([] if passed else [2])
    assert passed or "at step 2" in verdict.reason


@pytest.mark.parametrize(
    ("fault", "statuses", "reason"),
    [
        ({"path": (8.0, 4.0, 200.0)}, ["ok"] * 3, "own path off by 14 on average"),
        ({"path": (8.0, 4.01, 2.0)}, ["ok"] * 3, "loss off by 0.0025 after one step of its own"),
        ({"scale": {"small": -1.0}}, ["ok"] * 3, "small: cosine -1.0000"),
        *(
            ({"losses": (8.0, loss, 2.0)}, ["ok", "diverged"], "diverged at step 2")
            for loss in (math.nan, math.inf)
        ),
        *(
            ({"scale": {"small": factor}}, ["diverged"], "diverged at step 1")
            for factor in (math.nan, math.inf)
        ),
    ],
)
def test_a_fault_fails_with_its_reason_and_what_is_not_finite_ends_in_a_diverged_row(
    measured, fault, statuses, reason
):
    rows, verdict = measured(Fake(**fault))
    assert (list(rows["status"]), verdict.passed, verdict.num_steps) == (
        statuses,
        False,
        len(statuses),
    )
    assert reason in verdict.reason
    assert rows["settings"].iloc[0]["worst_norm_ratio"] == (
        None if statuses == ["diverged"] else 1.0
    )


@pytest.mark.parametrize(("layer", "factor"), [("large", 1.1), ("small", 0.9)])
@pytest.mark.parametrize("precision", TOLERANCES)
def test_a_tenth_off_in_one_layer_fails_though_the_losses_agree(measured, precision, layer, factor):
    rows, verdict = measured(Fake({layer: factor}), precision, 1)
    assert not verdict.passed
    assert layer in verdict.reason
    assert rows["settings"].iloc[0]["worst_norm_ratio"] == pytest.approx(factor)
    assert rows["settings"].iloc[0]["worst_norm_ratio_layer"] == layer


@pytest.mark.parametrize(
    ("given", "expected", "judged"),
    [
        (1e-5, 1e-16, 1),
        (1e-2, 1e-16, 2),
        (-3e-8, 1e-12, 1),
        (0.5, 1e-12, 2),
    ],  # shares of the other layer's gradient
)
def test_a_layer_without_gradient_is_judged_only_where_the_device_gives_it_more_than_rounding(
    given, expected, judged
):
    found, reference = (
        {"a": numpy.ones(4), "b": numpy.full(4, share)} for share in (given, expected)
    )
    nearness = parity.compare(found, reference, 1e-6)
    assert (nearness["layers"], nearness["layers_judged"]) == (2, judged)
    assert nearness["worst_norm_ratio"] == 1.0 or nearness["worst_norm_ratio_layer"] == "b"


def test_what_a_device_lacks_is_an_unsupported_row_and_the_run_goes_on(digits, record):
    workload = vae.Plan.build(
        digits, CPU, "controlled", data_resident=True, settings=Settings("tf32")
    )
    assert not parity.check(workload, record, 1).passed
    rows = record.rows()
    assert rows[["status", "precision"]].values.tolist() == [["unsupported", "tf32"]]
    assert "tf32" in rows["message"].item()
    assert record.marker.exists()


def test_nothing_compared_is_not_passed(measured):
    rows, verdict = measured(Fake(), num_steps=0)
    assert (len(rows), verdict) == (0, Agreement(False, "not checked", 0))


def test_each_precision_has_its_verdict(measured, record):
    measured(Fake(), "fp32")
    measured(Fake({"small": 1.1}), "bf16")
    table = agreement.verdicts(record.rows())
    assert dict(zip(table["precision"], table["passed"], strict=True)) == {
        "bf16": False,
        "fp32": True,
    }
    assert list(table["num_steps"]) == [3, 3]


def rate(step):
    return 0.1


@pytest.mark.parametrize(
    ("plain", "theirs", "options"),
    [
        (Adam(rate, 1e-3), torch.optim.Adam, {"eps": 1e-3}),
        (Adam(rate, weight_decay=0.02), torch.optim.AdamW, {"weight_decay": 0.02}),
    ],
)
def test_plain_adam_is_torchs(plain, theirs, options):
    weight = torch.linspace(-1, 1, 7, dtype=torch.float64).requires_grad_()
    made, weights = theirs([weight], rate(0), **options), {"w": numpy.linspace(-1, 1, 7)}
    for number in range(4):
        gradient = numpy.sin(numpy.arange(7.0) + number)
        weights = plain.step(weights, {"w": gradient}, number)
        weight.grad = torch.from_numpy(gradient)
        made.step()
    numpy.testing.assert_allclose(weights["w"], weight.detach().numpy(), rtol=1e-12)


def test_only_a_norm_above_the_limit_is_scaled_down_and_zeros_stay():
    plain = Plain(None, None, None, 1, max_norm=1.0)
    for gradient, expected in (
        ([3.0, 4.0], [0.6, 0.8]),
        ([0.3, 0.4], [0.3, 0.4]),
        ([0.0, 0.0], [0.0, 0.0]),
    ):
        assert plain.clipped({"w": numpy.array(gradient)})["w"].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "variant", "precision"),
    [
        *(("mnist", "controlled", precision) for precision in ("fp32", "amp_bf16")),
        ("mnist", "tuned", "fp32"),
        *(("vae", "controlled", precision) for precision in ("fp32", "amp_bf16", "amp_fp16")),
    ],
)
@pytest.mark.parametrize("device", DEVICES)
def test_a_right_network_passes_and_nothing_that_follows_changes(
    digits, record, device, name, variant, precision
):
    options = {"batch_size": 16, "settings": Settings(precision)}
    workload = PLANS[name].build(digits, device, variant, data_resident=True, **options)
    before, state = workload.model.state_dict(), torch.get_rng_state()
    before = {name: value.clone() for name, value in before.items()}
    verdict = parity.check(workload, record, 3)
    assert verdict.passed, verdict.reason
    assert all(
        torch.equal(value, before[name]) for name, value in workload.model.state_dict().items()
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(
        value.any() for values in workload.optimizer.state.values() for value in values.values()
    )
    assert all(module.training for module in workload.model.modules())
    assert record.rows()["settings"].iloc[0]["labels_checked"] == (48 if name == "mnist" else 0)


def test_reference_is_float64_without_dropout(digits):
    workload = mnist.Plan.build(digits, CPU, "tuned", data_resident=True, batch_size=8)
    with workload.compared() as subject:
        batch = subject.to_host(subject.batches(1)[0])
        network = float64.Torch(subject.plain, subject.weights(), subject.statistics())
        (loss, _, _), (again, _, _) = (
            network.differentiate(*subject.plain.inputs(batch)) for _ in range(2)
        )
    assert type(network.network).__name__ == "Network"  # not the lean one
    assert {part.dtype for part in network.network.parameters()} == {torch.float64}
    assert loss == again


@pytest.mark.parametrize("num_steps", [1, 3])
@pytest.mark.parametrize("precision", ["fp32", "amp_bf16", "amp_fp16"])
def test_a_right_workload_with_momentum_statistics_and_a_scaler_passes(
    record, precision, num_steps
):
    verdict = parity.check(plants.tiny(precision), record, num_steps)
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize("precision", ["fp32", "amp_fp16"])
@pytest.mark.parametrize("kind", ["foreach", "fused"])
def test_an_optimiser_that_changes_gradients_in_place_as_on_a_gpu_passes(record, kind, precision):
    """Nesterov's momentum is added to the gradients, and a fused optimiser divides them by the
    scale."""
    workload = plants.tiny(precision)
    for group in workload.optimizer.param_groups:
        group |= {"nesterov": True, "weight_decay": 0.0, kind: True}
    workload.optimizer._step_supports_amp_scaling = kind == "fused"
    rule = functools.partial(SGD, lambda step: 0.1, 0.9, nesterov=True)
    workload.plain = dataclasses.replace(workload.plain, make_optimizer=rule)
    verdict = parity.check(workload, record, 3)
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize("name", plants.EVERY)
def test_training_that_is_wrong_is_caught(record, name):
    workload = plants.tiny("amp_fp16" if "scaler" in name else "fp32")
    plants.EVERY[name](workload)
    verdict = parity.check(workload, record, 1)
    assert not verdict.passed
    assert not verdict.reason.startswith("unsupported"), verdict.reason


class Centred(nn.Linear):
    """Replaces a buffer in each step, by which it centres its output."""

    def __init__(self):
        super().__init__(36, 3)
        self.register_buffer("centre", torch.zeros(3))

    def forward(self, images):
        hidden = super().forward(images.flatten(1))
        self.centre = 0.9 * self.centre + 0.1 * hidden.detach().mean(0)
        return hidden - 0.5 * self.centre


class Clipped(plants.Tiny):
    """Clips its weights in place."""

    def forward(self, images):
        self.dense.weight.data.clamp_(-0.05, 0.05)
        return super().forward(images)


class Directions(nn.Linear):
    """Turns images into the eigenvectors of their covariance; some are any of a plane."""

    def __init__(self):
        super().__init__(36, 3)

    def forward(self, images):
        flat = images.flatten(1) - images.flatten(1).mean(0)
        return super().forward(flat @ torch.linalg.eigh(flat.T @ flat)[1])


class Satisfied(nn.Linear):
    """Has no loss."""

    def __init__(self):
        super().__init__(36, 3, bias=False)

    def forward(self, images):
        outputs = super().forward(0 * images.flatten(1))
        return outputs + 200 * nn.functional.one_hot((images.mean((1, 2, 3)) * 255 > 99).long(), 3)


class Noisy(plants.Tiny):
    def forward(self, images):
        return super().forward(images + 0.1 * torch.randn_like(images))


def of_one_pixel():
    layers = nn.Conv2d(1, 8, 6), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
    return nn.Sequential(*layers)


# Networks of other people, and why their comparison proves nothing; empty: they can be compared.
STRANGERS = {
    "replaces a buffer": (Centred, ""),
    "clips its weights": (Clipped, "changes its own weights"),
    "turns eigenvectors": (Directions, "it is discontinuous"),
    "draws noise": (Noisy, "draws at random"),
    "normalises two values": (of_one_pixel, "a batch norm over 2 values, under 8"),
    "has no loss": (Satisfied, "there is nothing to compare"),
}


@pytest.mark.parametrize("precision", ["fp32", "amp_bf16"])
@pytest.mark.parametrize("name", STRANGERS)
def test_a_strangers_network_is_compared_or_unproven_and_has_a_rate(record, name, precision):
    network, reason = STRANGERS[name]
    if name == "normalises two values" and precision == "fp32":
        reason = ""  # its rounding is small enough
    record.common["settings"] = {"num_parity_steps": 3}
    workload = plants.tiny(precision, network=network, batch_size=2 if "two" in name else 8)
    workload.columns["dataset"] = "synthetic"  # which nothing can learn
    if "no loss" in name:
        workload.loss = lambda outputs, target: (outputs - outputs).sum()
        workload.plain = dataclasses.replace(workload.plain, loss=workload.loss)
    training.adopt(workload)
    protocol.first_step(workload, record)
    parity.check(workload, record, 3)
    protocol.measure_windows(workload, record, protocol.Amount(samples_per_window=48))
    [line] = verdicts.summarise(record.rows()).to_dict("records")
    said = line["verdict"].text(verdicts.UNPROVEN)
    assert (line["verdict"].text(verdicts.WRONG), reason in said) == ("", True), said
    assert line["samples_per_second"] > 0


@pytest.mark.parametrize("plant", ["half batches", "no momentum"])
@pytest.mark.parametrize("name", [name for name in STRANGERS if not STRANGERS[name][1]])
def test_a_fault_of_a_strangers_network_is_found(record, name, plant):
    workload = plants.tiny(network=STRANGERS[name][0])
    training.adopt(workload)
    plants.EVERY[plant](workload)
    verdict = parity.check(workload, record, 1)
    assert not verdict.passed
    assert not verdict.reason.startswith("unsupported"), verdict.reason


@pytest.mark.parametrize("precision", ["fp32", "amp_bf16"])
@pytest.mark.parametrize("name", ["", *plants.OF_LARGE_BATCHES])
def test_a_batch_larger_than_its_compared_part_is_compared_whole(record, name, precision):
    workload = plants.tiny(precision, batch_size=24)
    if name:
        plants.OF_LARGE_BATCHES[name](workload)
    verdict = parity.check(workload, record, 1)
    assert verdict.passed is not bool(name), verdict.reason
    assert record.rows()["settings"].iloc[0]["whole_samples"] == 24


def test_a_whole_batch_that_memory_does_not_hold_leaves_its_point_unproven(record, monkeypatch):
    differentiate = float64.Torch.differentiate

    def short(network, *given):
        if network.dtype == torch.float32:
            raise RuntimeError(
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."
            )
        return differentiate(network, *given)

    monkeypatch.setattr(float64.Torch, "differentiate", short)
    record.common["settings"] = {"num_parity_steps": 1}
    workload = plants.tiny(batch_size=24)
    assert parity.check(workload, record, 1).passed
    protocol.measure_windows(
        workload, record, protocol.Amount(samples_per_window=24, evaluates=False)
    )
    verdict = verdicts.summarise(record.rows())["verdict"].item()
    assert verdict.text(verdicts.UNPROVEN) == "no memory to compare a whole batch"


def inverts_images(workload):
    """Give the network negative images."""
    workload.model.register_forward_pre_hook(lambda _, images: tuple(-each for each in images))


def turns_labels(workload):
    """Give each image the next class."""
    loss = workload.loss
    workload.loss = lambda outputs, target: loss(outputs, (target + 1) % 3)


@pytest.mark.parametrize("precision", ["fp32", "amp_bf16", "amp_fp16"])
@pytest.mark.parametrize("change", [None, inverts_images, turns_labels])
def test_a_step_that_changes_after_the_compared_ones_is_wrong(record, change, precision):
    workload = plants.tiny(precision, batch_size=24)
    record.common["settings"] = {"num_parity_steps": 3}
    assert parity.check(workload, record, 3).passed
    if change:
        change(workload)
    protocol.measure_windows(workload, record, protocol.Amount(samples_per_window=960))
    verdict = verdicts.summarise(record.rows())["verdict"].item()
    said = verdict.text(verdicts.WRONG)
    assert said.startswith("the loss of the last batch is") is bool(change), said


@pytest.mark.parametrize(
    ("share", "stays_off", "acts"), [(0.3, False, True), (0.3, True, False), (0.0, True, None)]
)
@pytest.mark.parametrize("precision", ["fp32", "amp_bf16"])
def test_dropout_that_stays_off_after_a_test_is_wrong(record, precision, share, stays_off, acts):
    workload = plants.tiny(precision)
    workload.model.dropout.p = share
    if stays_off:
        workload.model.train = lambda mode=True: nn.Module.train(workload.model, False)
    amount = protocol.Amount(num_repeats=2, samples_per_window=16)
    protocol.measure_windows(workload, record, amount)
    rows = record.rows()
    tested = rows[rows["phase"] == "evaluate"]["settings"]
    assert [settings.get("dropout_acts") for settings in tested] == [acts] * 2
    verdict = verdicts.summarise(rows)["verdict"].item()
    assert verdict.text(verdicts.WRONG) == "its dropout drops nothing" * (acts is False)
    if not stays_off:  # the second repeat is the first again: the steps left no trace
        losses = rows[rows["phase"] == "train"]["loss"].tolist()
        assert losses[0] == losses[1]


@pytest.mark.parametrize("is_frozen", [False, True])
def test_weights_that_moved_in_the_first_step_and_not_in_the_windows_are_wrong(record, is_frozen):
    workload = plants.tiny()
    protocol.first_step(workload, record)
    assert parity.check(workload, record, 1).passed
    if is_frozen:
        plants.frozen_below_the_head(workload)
    protocol.measure_windows(
        workload, record, protocol.Amount(2, 2, samples_per_window=16, evaluates=False)
    )
    verdict = verdicts.summarise(record.rows())["verdict"].item()
    assert verdicts.has(verdict, "frozen") is is_frozen
    assert (
        verdict.text(verdicts.WRONG)
        == "3 of 5 trained tensors stayed as they were in the windows" * is_frozen
    )


class Complex(nn.Module):
    """An edited network: products of complex weights with the image's frequencies."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(15, 32, dtype=torch.cfloat) / 20)
        self.dense = nn.Linear(28 * 32, 10)

    def forward(self, images):
        hidden = torch.fft.rfft(images.squeeze(1)) @ self.weights
        return self.dense(torch.view_as_real(hidden).sum(-1).flatten(1)).log_softmax(1)


class Recurrent(nn.Module):
    """An edited network: dropout between recurrent layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.LSTM(28, 32, num_layers=2, dropout=0.5, batch_first=True)
        self.dense = nn.Linear(32, 10)

    def forward(self, images):
        return self.dense(self.layers(images.squeeze(1))[0][:, -1]).log_softmax(1)


@pytest.mark.parametrize("network", [Complex, Recurrent])
def test_right_steps_of_edited_networks_of_other_kinds_agree(network, digits, record):
    workload = mnist.Plan.build(
        digits, CPU, "controlled", data_resident=True, network_class=network
    )
    verdict = parity.check(workload, record, 3)
    assert (verdict.passed, verdict.num_steps) == (True, 3), verdict.reason
