"""Rules across the rows of a machine: what a tuned run measures, and the operations of a network."""

import pytest

from benchbook.rows import crosschecks
from rows import make_row, make_rows


def tuned_run(chosen, rates, precision="fp32", run_id="20261122T041032Z-00000001"):
    """Return rows of a run: windows of reference and tuned by turns, of these rates, and one that trains `chosen`."""
    run = {"variant": "tuned", "point": "tuned-cpu", "run_id": run_id}
    sides = ("reference", "tuned", "tuned", "reference")
    confirm = {"phase": "confirm", "precision": "fp32", "input_seconds": 0.0, **run}
    made = [
        make_row(**confirm, index=index, samples_per_second=rate, seconds=640 / rate, settings={"side": side})
        for index, (side, rate) in enumerate(zip(sides, rates, strict=False))
    ]
    return [*made, make_row(precision=precision, settings={"chosen": chosen}, **run)]


FASTER, SLOWER, SECOND = (100.0, 120.0, 130.0, 100.0), (100.0, 120.0, 99.0, 100.0), "20261122T051032Z-00000002"


@pytest.mark.parametrize(
    ("rows", "reasons"),
    [
        (tuned_run("tuned", FASTER), []),
        (tuned_run("reference", SLOWER), []),
        (tuned_run(None, ()), []),  # as rows had it before choices were recorded
        (tuned_run("tuned", FASTER) + tuned_run("tuned", SLOWER, run_id=SECOND), []),  # the first kernel decided
        (tuned_run("tuned", ()), ["no windows compare it"]),
        (tuned_run("tuned", FASTER) + tuned_run("tuned", (), run_id=SECOND), ["no windows compare it"]),
        (tuned_run("tuned", SLOWER), ["chosen is tuned, and tuned is 0.99 times"]),
        (tuned_run("reference", FASTER), ["chosen is reference, and tuned is 1.2 times"]),
        (tuned_run("tuned", FASTER, "amp_bf16"), ["precision is amp_bf16, that of the windows that compare it fp32"]),
    ],
)
def test_what_a_tuned_run_measures_is_what_its_windows_decided(rows, reasons):
    found = crosschecks.complaints(make_rows(rows), {})["reason"].tolist()
    assert len(found) == len(reasons)
    assert all(reason in line for reason, line in zip(reasons, found, strict=True))


MNIST = {"model": "mnist_cnn", "parameters": 1_199_882, "image_size": 28, "flops_per_sample": 71_565_312.0}
FROZEN = {"model": "mobilenetv2", "parameters": 2_270_794, "image_size": 96, "flops_per_sample": 110_069_504.0}
PRODUCT = {"model": "matmul", "phase": "calibrate", "flops_per_sample": 2.0 * 512**3, "settings": {"matrix_size": 512}}


@pytest.mark.parametrize(
    ("columns", "is_true"),
    [
        (MNIST, True),
        (MNIST | {"flops_per_sample": 2 * 71_565_312.0}, False),
        (FROZEN | {"settings": {"trainable": False}}, True),
        (
            FROZEN | {"settings": {"trainable": False}, "flops_per_sample": 326_150_400.0},
            False,
        ),  # as if all was trained
        (FROZEN | {"settings": {"trainable": True}, "flops_per_sample": 326_150_400.0}, True),
        (MNIST | {"flops_per_sample": 1e9, "settings": {"network": "mine.py:mnist_cnn"}}, True),  # nobody counted it
        (PRODUCT, True),
        (PRODUCT | {"flops_per_sample": 3.0 * 512**3}, False),
    ],
)
def test_operations_are_those_of_the_network_that_was_counted(columns, is_true):
    found = crosschecks.complaints(make_rows([make_row(**columns)]), {})["reason"].tolist()
    assert ["flops_per_sample is" in reason for reason in found] == [True] * (not is_true)
