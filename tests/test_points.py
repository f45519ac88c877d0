"""What makes a point: its name, the work behind it, and defaults that may not change unseen."""

import json

import pandas
import pytest

from benchbook.machine import layout
from benchbook.rows import points
from benchbook.studies.experiments import parameters
from benchbook.studies.experiments.parameters import declared, non_default, point_name
from made.rows import COMMITTED

STUDY = "mnist_speedup"
DEFAULTS = declared(STUDY) | {"device": "cpu"}


@pytest.mark.parametrize(
    "path", sorted(COMMITTED.parent.glob("*/*/*/*.json")), ids=lambda path: path.stem
)
def test_every_committed_point_keeps_its_name(path):
    """Its name says what differs from its Plan's defaults: after a change of one, SCHEMA_VERSION
    rises."""
    stated = json.loads(path.read_text())["parameters"]
    assert point_name(path.parent.parent.name, stated) == path.parent.name


def test_the_page_of_budgets_is_what_the_plans_say():
    written = (layout.root() / "docs" / "budget.md").read_text(encoding="utf-8")
    assert written == parameters.table(), "python -m benchbook.studies.experiments.parameters"


def test_a_new_parameter_changes_no_points_name(monkeypatch):
    before, known = point_name(STUDY, DEFAULTS | {"batch_size": 16}), declared(STUDY)
    monkeypatch.setattr(parameters, "declared", lambda study: known | {"num_prefetched": 2})
    assert point_name(STUDY, DEFAULTS | {"batch_size": 16}) == before
    assert point_name(STUDY, DEFAULTS | {"batch_size": 16, "num_prefetched": 2}) == before
    assert point_name(STUDY, DEFAULTS | {"batch_size": 16, "num_prefetched": 3}) != before


def test_the_work_of_a_point_is_the_same_on_every_device_and_however_much_is_measured():
    def work(study=STUDY, **changes):
        given = declared(study) | {"device": "cpu"} | changes
        return points.point_work(point_name(study, given), given["device"])

    same = [
        {},
        {"device": "cuda"},
        {"data_root": "/x"},
        {"search_seconds": 6.0},
        {"num_windows": 6},
        {"seed": 2},
    ]
    others = [{"variant": "tuned"}, {"batch_size": 16}, {"data_resident": True}]
    assert {work(**changes) for changes in same} == {"reference"}
    assert len({work(**changes) for changes in [{}, *others]}) == 1 + len(others)
    assert work("simclr_epochs", matrix="eager") == work("simclr_epochs")
    long = [work(depth="a" * 99 + last) for last in "bc"]
    assert long[0] != long[1], "names are cut, hashes are not"


def test_differing_parameters_are_those_that_are_not_the_default_wherever_the_data_lies():
    assert non_default(STUDY, DEFAULTS) == {"device": "cpu"}
    changed = DEFAULTS | {"seed": 7, "search_seconds": 30, "data_root": "/somewhere"}
    assert non_default(STUDY, changed) == {"device": "cpu", "seed": 7, "search_seconds": 30.0}
    assert (
        json.dumps(non_default(STUDY, changed)["search_seconds"]) == "30.0"
    )  # the same hash as a fraction's


def test_a_point_has_a_title_for_people_from_its_parameters():
    changed = {
        "batch_size": 16,
        "framework": "jax",
        "data_resident": True,
        "depth": 3,
        "num_windows": 9,
    }
    told = "reference, CPU, batch 16, data on the device, depth 3, JAX"
    assert parameters.title(STUDY, DEFAULTS | changed) == told
    rows = pandas.DataFrame({"study": STUDY, "point": ["one", "two"], "run_id": ["first", "lost"]})
    assert parameters.titles(rows, {"first": {"parameters": DEFAULTS | changed}}) == {
        "one": told,
        "two": "two",
    }
