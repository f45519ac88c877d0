"""Every notebook on the smallest profile, from its first cell to its section of the report."""

from pathlib import Path

import pandas
import pytest

from benchbook import layout, parity, profiles, records, report, studies
from benchbook.profiles import Point
from processes import framework_of, run_cells


def takes_long(point: Point) -> bool:
    """Return whether a point takes long: ResNet-50 in two processes or searched for, or a network that JAX compiles.

    How it is searched and confirmed, the smaller networks show.
    """
    tuned_resnet = (point.study, point.parameters.get("variant")) == ("resnet50_cost", "tuned")
    return tuned_resnet or framework_of(point) == "jax" or point.parameters.get("device_count", 1) > 1


def run_points(points: list[Point], folder: Path) -> pandas.DataFrame:
    """Run points with a process for each framework, in place of a kernel for each point; return their rows."""
    profiles.write_points(folder / "points.json", points)
    for framework in sorted({framework_of(point) for point in points}):
        run_cells(folder, str(folder / "points.json"), framework)
    return records.merge(records.find(folder / "runs"))


def check_measured_once(points: list[Point], rows: pandas.DataFrame) -> None:
    measured = rows.groupby(["study", "point"])["run_id"].nunique().to_dict()
    assert measured == {(point.study, point.name): 1 for point in points}
    failed = records.without_refusals(rows).query("status != 'ok'")
    assert failed[["point", "status", "message"]].to_dict("records") == []


@pytest.fixture(scope="module")
def points():
    return [point for point in profiles.read("smoke") if not takes_long(point)]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture(scope="module")
def rows(points, outputs):
    return run_points(points, outputs)


def test_every_study_is_in_the_registry():
    assert {*studies.every(), "aggregate"} == set(layout.notebooks())


@pytest.mark.notebook
def test_every_point_is_measured_once_and_none_fails(points, rows):
    check_measured_once(points, rows)


@pytest.mark.slow
@pytest.mark.notebook
def test_so_are_those_that_take_long(tmp_path):
    points = [point for point in profiles.read("smoke") if takes_long(point)]
    check_measured_once(points, run_points(points, tmp_path))


@pytest.mark.notebook
def test_every_network_computes_what_float64_does(points, rows):
    compared = {point.name for point in points if point.parameters.get("num_parity_steps")}
    assert set(rows.loc[rows["phase"] == "parity", "point"]) == compared
    verdicts = parity.verdicts(rows)
    assert verdicts.loc[~verdicts["passed"], ["study", "framework", "reason"]].to_dict("records") == []


@pytest.mark.notebook
def test_every_point_and_every_chart_is_in_the_report(points, rows, outputs):
    run_cells(outputs, "aggregate")
    page = report.write_pages(outputs / "figures", outputs / "report").read_text()
    charts = [chart.name for study in studies.every().values() for chart in study.charts]
    assert [name for name in charts if f'id="{name}"' not in page] == []
    summary = pandas.read_csv(outputs / "figures" / "summary.csv")
    assert set(summary["point"]) == {point.name for point in points}
