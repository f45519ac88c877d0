"""MNIST on MLX: the same function as in torch, steps that float64 confirms, and complete work."""

from dataclasses import replace

import pytest

from benchbook import datasets
from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings
from benchbook.measuring import calibration, parity, tuned
from benchbook.measuring.window import trainer
from made import small
from made.fakes import apple_gpu, run

pytestmark = pytest.mark.frameworks("mlx")
CPU = Device("cpu", "a CPU", "mlx")


def build(device=CPU, precision="fp32", compiled=False, **options):
    """Return a small workload of MNIST on MLX or torch."""
    settings = Settings(precision, compiled=compiled)
    options = {"variant": "controlled", "data_resident": True} | options
    return small.build("mnist_speedup", device, settings=settings, **options)


def losses(workload, num_steps=2):
    train = trainer(workload)
    windows = [train(1) for _ in range(num_steps)]
    assert {window["steps"] for window in windows} == {1}
    return [window["loss"] for window in windows]


# In fp32 on the CPU, `test_workloads` compares them.
@pytest.mark.parametrize("precision", ["fp32", "amp_bf16"])
@pytest.mark.parametrize("device", [apple_gpu("metal", "mlx")])
def test_three_steps_on_a_gpu_are_those_of_float64(device, precision, tmp_path):
    verdict = parity.check(build(device, precision), run(tmp_path), 3)
    assert (verdict.passed, verdict.num_steps) == (True, 3), verdict.reason


def test_three_steps_in_16_bits_are_those_of_float64(tmp_path):
    verdict = parity.check(build(precision="amp_bf16"), run(tmp_path), 3)
    assert (verdict.passed, verdict.num_steps) == (True, 3), verdict.reason


def test_a_step_that_was_not_handed_over_is_done_before_the_clock_stops(monkeypatch):
    import mlx.core as mx

    from benchbook.frameworks.mlx import training

    workload = build(data=datasets.load("digits"), batch_size=64)
    batch = next(workload.batches(0))

    def check():
        """Queue two steps without submitting them, wait, and return the fraction of the time
        that is left."""
        return calibration.check_synchronize(
            CPU,
            operation=lambda previous: workload.step(batch),
            read=lambda device, last: mx.eval(workload.changing),
            work_seconds=0.01,
        )

    monkeypatch.setattr(mx, "async_eval", lambda *arrays: None)
    assert check() < 0.1
    monkeypatch.setattr(
        training.mx, "depends", lambda loss, others: loss
    )  # the loss is known before the update
    with pytest.raises(calibration.NotSynchronized):
        check()


@pytest.mark.parametrize(("precision", "compiled"), [("fp32", True), ("amp_bf16", False)])
def test_what_follows_a_restored_snapshot_repeats_dropout_schedule_and_all(precision, compiled):
    workload = build(precision=precision, compiled=compiled)
    fresh = workload.snapshot()
    first = losses(workload)
    workload.end_epoch()
    workload.restore(fresh)
    assert losses(workload) == first
    assert len(set(first)) == 2
    assert workload.optimizer.learning_rate.item() == 1.0
    workload.end_epoch()
    assert workload.optimizer.learning_rate.item() == pytest.approx(0.7)


def test_compiled_or_not_the_first_step_is_the_same():
    plain, compiled = (losses(build(compiled=value), 1) for value in (False, True))
    assert compiled == pytest.approx(plain, rel=1e-5)


def test_a_search_tries_precisions_and_the_compiler_and_nothing_that_mlx_lacks():
    metal = replace(CPU, kind="metal")
    assert tuned.candidates(metal) == [
        {"precision": "amp_fp16"},
        {"precision": "amp_bf16"},
        {"compiled": True},
    ]
    with pytest.raises(NotImplementedError, match="allowed with MLX: precision, compiled"):
        small.build("mnist_speedup", CPU, settings=Settings(channels_last=True))
    with pytest.raises(NotImplementedError, match="MLX in tf32; allowed: fp32, amp_bf16, bf16"):
        build(precision="tf32")
    with pytest.raises(
        NotImplementedError, match="tensorflow with mnist_speedup; allowed: torch, mlx"
    ):
        build(device=Device("cpu", "a CPU", "tensorflow"))
