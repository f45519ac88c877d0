"""A machine among others: what it is held against, what is left out, and what it is like."""

import pandas
import pytest

from benchbook import articles, readings, studies, world
from benchbook.study import Evidence
from rows import make_row, make_rows

MNIST, SIMCLR, VAE = (studies.every()[name] for name in ("mnist_speedup", "simclr_epochs", "vae_stability"))
EPOCH = 60_000


def epoch(seconds, machine="desk", device="cpu", **columns):
    """Return rows of a point whose whole epoch takes so many seconds, none of them for set-up or test."""
    name = f"{machine}-{device}-{columns.get('dataset')}-{columns.get('variant')}"
    common = {"machine": machine, "device": device, "point": name, "run_id": name, "session": name} | columns
    return [make_row(**common, index=index, samples_per_second=EPOCH / seconds) for index in range(6)]


PUBLISHED = articles.rows()


def evidence(*parts):
    measured = make_rows([row for part in parts for row in part])
    return Evidence(pandas.concat([measured, PUBLISHED], ignore_index=True))


def test_a_cpu_is_held_against_the_nearest_cpu_that_has_a_name():
    assert world.likeness(evidence(epoch(100.2)), MNIST).startswith(
        "its CPU has about a third of the speed of an Apple M1's CPU on MNIST"
    )


def test_a_gpu_is_held_against_gpus_and_both_are_said():
    both = evidence(epoch(33.4), epoch(9.8, device="mps"))
    said = world.summary(both)
    assert "its CPU has about the speed of an Apple M1's CPU" in said
    assert "its GPU has 2.0 times the speed of an Apple M1's GPU" in said


def test_one_start_and_a_noisy_one_are_hedged():
    noisy = [row | {"samples_per_second": rate} for row, rate in zip(epoch(50.0), [900, 2000] * 3, strict=True)]
    assert "its speed varied" in world.summary(evidence(noisy))
    starts = [row | {"run_id": f"{row['run_id']}-{start}"} for start in range(5) for row in epoch(50.0)]
    assert "(" not in world.summary(evidence(starts))


def test_data_of_the_same_size_that_stand_in_are_named_unless_the_articles_own_were_trained_on():
    stand_in = epoch(100.2, dataset="digits-28px", image_size=28)
    said = world.summary(evidence(stand_in))
    assert "about a third of the speed of an Apple M1's CPU on MNIST, with 8 x 8 scans of digits" in said
    assert "scans" not in world.summary(evidence(stand_in, epoch(50.0, machine="other")))


def test_without_comparable_training_a_machine_is_held_against_a_peak_by_its_ceiling():
    product = {"phase": "calibrate", "study": "calibrate", "model": "matmul", "flops_per_sample": 2e9}
    rows = [
        make_row(device="cpu", index=index, samples_per_second=436.0, precision="fp32", loss=None, **product)
        for index in range(3)
    ]
    said = world.summary(evidence(rows))
    assert "by its ceiling alone" in said
    assert "about a third of what is printed of an Apple M1's GPU (0.87 of 2.6 TFLOP/s)" in said


@pytest.mark.parametrize(
    "rows",
    [
        [],
        epoch(50.0, dataset="digits-8px", image_size=8),
        epoch(50.0, variant="tuned"),
        epoch(50.0, batch_size=256),
        epoch(50.0, study="vae_stability"),
    ],
    ids=["nothing", "another size", "another way", "another batch", "another study"],
)
def test_what_cannot_be_compared_is_not_and_that_is_said(rows):
    assert "can be compared" in world.summary(evidence(rows))


def test_measured_published_and_predicted_stand_side_by_side_in_order():
    own = epoch(4000.0, study="simclr_epochs", dataset="cifar10", batch_size=128, image_size=32)
    table, column = world.table(evidence(own), SIMCLR)
    assert column == world.SECONDS
    assert set(table["kind"]) == {world.MEASURED, world.PUBLISHED, world.PREDICTED}
    assert table["value"].is_monotonic_increasing
    predicted = table[table["kind"] == world.PREDICTED].set_index("machine").loc["NVIDIA V100"]
    assert predicted["low"] < predicted["value"] < predicted["high"]
    rate = world.predictions("simclr_epochs").set_index("machine").loc["NVIDIA V100", "value"]
    assert predicted["value"] == pytest.approx(50_000 / rate)


def test_another_size_of_image_than_in_print_is_not_shown_beside_it():
    own = epoch(40.0, study="simclr_epochs", dataset="cifar10", batch_size=128, image_size=64)
    assert world.MEASURED not in set(world.table(evidence(own), SIMCLR)[0]["kind"])


@pytest.mark.parametrize("study", studies.every().values(), ids=lambda study: study.name)
def test_every_notebook_can_end_whatever_was_measured(study):
    failed = epoch(50.0, machine="attic", study=study.name, status="crashed")
    text, drawing = readings.closing(evidence(epoch(50.0, study=study.name), failed), study)
    assert text
    assert drawing.figure.axes[0].get_title(loc="left")


def test_a_notebook_can_end_where_nothing_is_printed_either():
    text, drawing = readings.closing(Evidence(make_rows([])), VAE)
    assert "not trained here" in text
    assert drawing.picture
