"""Every notebook on the smallest profile, from its first cell to its section of the report."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pandas
import pytest

from benchbook import studies
from benchbook.frameworks import devices
from benchbook.judging import agreement
from benchbook.machine import layout
from benchbook.report import aggregation
from benchbook.rows import records
from benchbook.running import profile_files, profiles
from benchbook.running.profiles import Point
from made.cells import write_points
from made.processes import run_cells

# The variant of each study whose cells are run here. Of MNIST `.ci/run` measures all points in
# kernels, and test_notebooks.py runs all cells; SimCLR's reference, which a search is compared
# with, starts eight processes for each window.
SHORT = {
    "calibrate": "",
    "vae_stability": "reference",
    "mobilenetv2_energy": "tuned",
    "simclr_epochs": "controlled",
}
SHORT |= {"segmentation_scaling": "reference", "resnet50_cost": "reference"}
SHORT |= {"gpt_tokens": "controlled"}
COMPARED_ALREADY = ("segmentation_scaling", "resnet50_cost")  # with float64, by test_workloads.py


def takes_long(point: Point) -> bool:
    """Return whether a point takes long; smaller networks do the same."""
    given = point.parameters
    is_like_another = (
        point.framework == "jax"
        or given.get("device_count", 1) > 1
        or given.get("lora_rank", 0) > 0
    )
    return is_like_another or given.get("variant", "") != SHORT.get(point.study)


def less(point: Point) -> Point:
    """Return the point, without a comparison with float64 if it is compared already."""
    given = point.parameters | ({"num_parity_steps": 0} if point.study in COMPARED_ALREADY else {})
    return replace(point, parameters=given, name=profiles.point_name(point.study, given))


# What a network of one's own is where it is not torch's, and a search that is over soon.
SEARCH = {"budget": {"search_seconds": 5, "window_seconds": 0.05}}


def offered(study: str) -> dict[str, list[str]]:
    """Return the variants that a notebook's own comments offer, and the frameworks that are
    installed."""
    [cell] = [
        cell
        for cell in layout.cells(layout.notebook(study))
        if "parameters" in cell["metadata"].get("tags", [])
    ]
    comments = {
        line.partition(":")[0]: line.partition("#")[2] for line in cell["source"].splitlines()
    }
    names = {"variant": records.VARIANTS, "framework": devices.installed()}
    return {
        choice: [name for name in allowed if re.search(rf"\b{name}\b", comments[choice])]
        for choice, allowed in names.items()
        if choice in comments
    }


def left_out() -> list[Point]:
    """Return the points of the variants and frameworks that notebooks offer and the profile has
    none of."""
    points = []
    had = {
        (point.study, point.parameters.get("variant"), point.framework)
        for point in profiles.read("smoke")
    }
    for study, entry in profile_files.read(layout.profile("smoke")).items():
        choices = offered(study)
        for values in itertools.product(*choices.values()):
            chosen = dict(zip(choices, values, strict=True))
            if (study, chosen.get("variant"), chosen.get("framework", "torch")) in had:
                continue
            chosen |= SEARCH if chosen.get("variant") == "tuned" else {}
            points += profiles.points_of(study, entry | {"points": [chosen]}, "all")
    return points


def run_points(points: list[Point], folder: Path) -> pandas.DataFrame:
    """Run points with a process for each framework, in place of a kernel for each point; return
    their rows."""
    write_points(folder / "points.json", points)
    for framework in sorted({point.framework for point in points}):
        run_cells(folder, str(folder / "points.json"), framework)
    return records.merge(folder / "runs")


def check_measured_once(points: list[Point], rows: pandas.DataFrame) -> None:
    measured = rows.groupby(["study", "point"])["run_id"].nunique().to_dict()
    firsts = [
        point.key
        for point in points
        if point.parameters.get("num_parity_steps") or "tuned" in point.name
    ]
    assert measured == {
        point.key: 1 + (point.key in firsts) for point in points
    }  # those have a process before
    failed = records.without_refusals(rows).query("status != 'ok'")
    assert failed[["point", "status", "message"]].to_dict("records") == []


@pytest.fixture(scope="module")
def points():
    return [less(point) for point in profiles.read("smoke") if not takes_long(point)]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture(scope="module")
def rows(points, outputs):
    return run_points(points, outputs)


def test_every_study_is_in_the_registry():
    assert {*studies.every(), "your_network", "aggregate"} == set(layout.notebooks())


def test_notebooks_offer_what_the_profile_asks_for():
    for point in profiles.read("smoke"):
        for choice, names in offered(point.study).items():
            assert point.parameters[choice] in names


@pytest.mark.notebook
def test_every_point_is_measured_once_and_none_fails(points, rows):
    check_measured_once(points, rows)


@pytest.mark.slow
@pytest.mark.notebook
def test_so_is_every_other_variant_and_framework_that_a_notebook_offers(tmp_path):
    points = [*filter(takes_long, profiles.read("smoke")), *left_out()]
    check_measured_once(points, run_points(points, tmp_path))
    run_cells(tmp_path, "aggregate")


@pytest.mark.notebook
def test_every_network_computes_what_float64_does(points, rows):
    compared = {point.name for point in points if point.parameters.get("num_parity_steps")}
    assert set(rows.loc[rows["phase"] == "parity", "point"]) == compared
    verdicts = agreement.verdicts(rows)
    assert (
        verdicts.loc[~verdicts["passed"], ["study", "framework", "reason"]].to_dict("records") == []
    )


@pytest.mark.notebook
def test_every_point_is_in_the_data_and_every_study_has_a_figure(
    points, rows, outputs, monkeypatch
):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(outputs))
    merged = aggregation.merge(outputs / "runs")
    merged.write(outputs / "figures")
    drawn = {name for name, drawing in merged.drawings.items() if drawing.figure}
    charts = {
        name: {chart.name for chart in study.charts} & drawn
        for name, study in studies.every().items()
    }
    undrawn = {point.study for point in points} - {
        name for name, of_study in charts.items() if of_study
    }
    assert undrawn <= {"segmentation_scaling"}  # of one point there is a number and no figure
    data = pandas.read_csv(outputs / "figures" / "data" / "points.csv")
    assert set(data["point"]) == {point.name for point in points}
