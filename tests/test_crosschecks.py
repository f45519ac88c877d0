"""Rules across the rows of a machine: what a tuned run measures, and the operations of a network."""

import pytest

from benchbook.rows import crosschecks, networks
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
        (tuned_run("tuned", ()), ["no windows compare tuned"]),
        (tuned_run("tuned", FASTER) + tuned_run("tuned", (), run_id=SECOND), ["no windows compare tuned"]),
        (tuned_run("tuned", SLOWER), ["chosen is tuned, but tuned is 0.99 times"]),
        (tuned_run("reference", FASTER), ["chosen is reference, but tuned is 1.2 times"]),
        (tuned_run("tuned", FASTER, "amp_bf16"), ["precision is amp_bf16, but fp32 in the windows"]),
    ],
)
def test_what_a_tuned_run_measures_is_what_its_windows_decided(rows, reasons):
    found = crosschecks.complaints(make_rows(rows), {})["reason"].tolist()
    assert len(found) == len(reasons)
    assert all(reason in line for reason, line in zip(reasons, found, strict=True))


PRODUCT = {"model": "matmul", "phase": "calibrate", "flops_per_sample": 2.0 * 512**3, "settings": {"matrix_size": 512}}
FROZEN = {"model": "mobilenetv2", "parameters": 2_270_794, "image_size": 96}


def of_network(name, **columns):
    """Return a row of a network, with the operations that the record counts."""
    size = {key: value for key, value in columns.items() if key in ("image_size", "sequence_length")}
    parameters = int(networks.table().loc[name, "parameters"])
    counted = {"flops_per_sample": networks.describe(name, **size).flops_per_sample, "settings": {}}
    return {"model": name, "parameters": parameters} | counted | columns


@pytest.mark.parametrize(
    ("columns", "is_counted"),
    [
        (PRODUCT, True),
        (of_network("mnist_cnn", image_size=28), True),
        (of_network("resnet50", image_size=224), True),
        (of_network("resnet50", image_size=64, flops_per_sample=1_994_883_072.0), True),  # as the workload counts it
        (of_network("nanogpt_char_small", sequence_length=64), True),
        (of_network("gpt2_124m", sequence_length=128), True),
        (FROZEN | {"flops_per_sample": 110_069_504.0, "settings": {"trainable": False}}, True),
        (of_network("mnist_cnn", image_size=28, settings={"network": "mine.py:mnist_cnn"}), False),
        (of_network("resnet50", image_size=100), False),  # of which a layer leaves a remainder
        (of_network("resnet50", image_size=224, parameters=23_514_179), False),  # of three classes
        (FROZEN | {"flops_per_sample": 1e9, "settings": {"trainable": True}}, False),
    ],
)
def test_operations_are_those_of_the_network_that_was_counted_or_any_where_none_was(columns, is_counted):
    for factor in (1.0, 1.5, 0.5):
        row = make_row(**columns | {"flops_per_sample": factor * columns["flops_per_sample"]})
        found = crosschecks.complaints(make_rows([row]), {})["reason"].tolist()
        assert ["flops_per_sample is" in reason for reason in found] == [True] * (is_counted and factor != 1)
