"""How a notebook ends: two sentences with the numbers of its point, and its machine among comparable ones."""

import pandas
import pytest

from benchbook import studies
from benchbook.record import articles
from benchbook.report.answers import closing
from benchbook.report.answers.marks import TASKS
from benchbook.studies.study import Evidence
from rows import make_row, make_rows, windows

STUDIES = [studies.every()[task.study] for task in TASKS if task.study]
ENERGY = {"energy_joules": 320.0, "energy_method": "nvml", "energy_boundary": "board", "idle_watts": 12.0}


def run(study="mnist_speedup", rates=(250.0, 320.0, 400.0), **columns):
    """Return the rows of a run of one point, a window at each rate."""
    named = {"study": study, "machine": "desk", "point": "a-point", "run_id": "a-run", "device": "cpu"} | columns
    return windows(rates, **named)


def among(*rows):
    return Evidence(pandas.concat([make_rows(list(rows)), articles.rows()], ignore_index=True))


def test_a_point_has_its_rate_its_bounds_and_its_joules():
    rows = run(precision="bf16", **ENERGY)
    text = closing.sentences(among(*rows), make_rows(rows))
    assert text.startswith("This point (reference, torch, cpu, bf16, mnist) trains 320 images a second (range 250 to")
    assert " 400, n=3; one start only)" in text
    assert "Energy: 0.5 J an image" in text


def test_it_is_of_the_runs_own_point_and_a_failed_one_says_how_it_ended():
    failed = make_row(machine="desk", point="other", status="out_of_memory", samples=None, samples_per_second=None)
    evidence = among(*run(), failed)
    assert "320 images" in closing.sentences(evidence, make_rows(run()))
    assert "measured no window: out of memory." in closing.sentences(evidence, make_rows([failed]))


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_notebook_ends_whatever_was_measured(study):
    for rows in ([], run(study.name), run(study.name, rates=[None], status="crashed", samples=None)):
        drawing = closing.among_others(among(*rows), study)
        assert drawing.table["seconds"].is_monotonic_increasing
        assert drawing.picture


def test_measured_published_and_predicted_times_of_the_same_work_are_in_order():
    simclr = studies.every()["simclr_epochs"]
    own = run("simclr_epochs", [12.5, 12.5], dataset="cifar10", batch_size=128, image_size=32)
    table = closing.among_others(among(*own), simclr).table
    assert set(table["source"]) == {"measured", "published", "predicted"}
    assert table.loc[table["source"] == "measured", "seconds"].tolist() == [200 * 390 * 128 / 12.5]  # whole batches
    other_size = run("simclr_epochs", [12.5, 12.5], dataset="cifar10", batch_size=128, image_size=64)
    assert "measured" not in set(closing.among_others(among(*other_size), simclr).table["source"])
