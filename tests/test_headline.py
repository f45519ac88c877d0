"""The headline's lines against sums done by hand: which point is shown, and what an epoch is."""

import pandas
import pytest

from benchbook import studies
from benchbook.judging.verdicts import Verdict
from benchbook.report import headline
from benchbook.studies.study import Evidence
from rows import make_row, make_rows, windows

PRINTED = {"source": "published", "machine": "printed-box", "run_id": "printed", "session": "printed"}
PRINTED |= {"point": "printed", "study": "resnet50_cost", "framework": "tensorflow", "dataset": "imagenet"}
PRINTED |= {"dataset_samples": 1000, "batch_size": 1024, "image_size": 224, "device": "cuda", "samples": None}
PRINTED |= {"seconds": None, "samples_per_second": 50.0}


def point(rates=(100.0,) * 6, batch_size=1024, **columns):
    """Return the rows of a measured point of ResNet-50, in the article's setting where nothing else is said."""
    common = {name: PRINTED[name] for name in ("study", "framework", "dataset", "dataset_samples", "image_size")}
    common |= {"batch_size": batch_size, "device": "cuda"} | columns
    parts = ("device", "framework", "dataset", "batch_size", "image_size", "status", "variant")
    name = "-".join(str(common.get(part)) for part in parts)
    common = {"point": name, "run_id": name, "session": name} | common
    if common.get("status", "ok") not in ("ok", "diverged"):
        common |= dict.fromkeys(("samples", "seconds", "samples_per_second", "input_seconds"))
        return [make_row(**common)]
    return windows(rates, **common)


def table(*parts, printed=(PRINTED,)):
    rows = make_rows([row for part in parts for row in part] + [make_row(**line) for line in printed])
    return headline.table(Evidence(rows), studies.every())


def spoken(*parts, **options):
    """Return the only measured line."""
    found = table(*parts, **options)
    found = found[found["source"] == "measured"]
    assert len(found) == 1
    return found.iloc[0]


def test_a_line_is_a_points_median_bounds_windows_and_verdict():
    line = spoken(point((99.0, 101.0, 98.0, 100.0, 102.0, 97.0)))
    described = line[["machine", "chip", "variant", "device", "dataset"]].tolist()
    assert described == ["desk", "Chip A", "reference", "cuda", "imagenet"]
    assert line["images_per_second"] == 99.5
    assert line["low"] < 99.5 < line["high"]
    assert line[["num_windows", "verdict", "status"]].tolist() == [6, Verdict(), "ok"]
    assert line["seconds_per_epoch"] == pytest.approx(1000 / 99.5)


def test_where_no_article_printed_an_epochs_images_there_is_no_time_of_one():
    own = point(dataset_samples=16)
    assert spoken(own)["seconds_per_epoch"] == 10  # the article's 1000 images, not the 16 of a short profile
    assert pandas.isna(spoken(own, printed=[PRINTED | {"dataset_samples": None}])["seconds_per_epoch"])


def test_the_columns_are_those_that_the_report_reads():
    for lines in (table(point()), table(printed=[])):
        assert lines.columns.tolist() == [*headline.COLUMNS, "of"]


UNSTABLE = {"rates": (700.0, 800.0, 900.0, 1000.0, 1100.0, 1200.0), "batch_size": 32}
FAST = {"rates": (500.0,) * 6}


@pytest.mark.parametrize(
    ("points", "rate"),
    [
        ([{}, FAST | {"batch_size": 64}, FAST | {"framework": "torch"}, FAST | {"image_size": 32}], 100),
        ([{"rates": (200.0,) * 6, "batch_size": 64}, {"rates": (300.0,) * 6, "batch_size": 128}, UNSTABLE], 300),
        ([UNSTABLE], 950),
        ([{}, FAST | {"dataset": "synthetic"}], 100),
    ],
    ids=["own setting", "fastest that is not unstable", "unstable alone", "own data"],
)
def test_one_point_is_shown_of_several(points, rate):
    assert spoken(*(point(**each) for each in points))["images_per_second"] == rate


def test_a_failure_is_a_line_without_measures_only_where_nothing_trained():
    failed = point(status="out_of_memory")
    line = spoken(failed)
    assert line["status"] == "out_of_memory"
    assert line[["images_per_second", "low", "high", "seconds_per_epoch"]].isna().all()
    assert spoken(failed, point((50.0,) * 6, 64))["images_per_second"] == 50
    own = {"point": "p", "run_id": "p", "session": "p"}  # of a run that broke off nothing is a measure
    line = spoken(point(**own), point(status="crashed", phase="total", **own))
    assert line[["status", "num_windows"]].tolist() == ["crashed", 6]
    assert pandas.isna(line["images_per_second"])


def test_an_epoch_of_mnist_is_what_the_article_timed_at_its_batch_size():
    common = {"study": "mnist_speedup", "device": "cpu", "dataset": "mnist", "image_size": 28, "framework": "torch"}
    common |= {"point": "m", "run_id": "m", "session": "m"}
    rows = [
        make_row(**common, phase="setup", seconds=1.0, samples=None, samples_per_second=None, batch_size=None),
        *windows([600.0] * 6, **common),
        make_row(**common, phase="evaluate", samples_per_second=5000.0),
    ]
    printed = PRINTED | common | {"phase": "total", "samples": 60_000, "seconds": 33.4, "epoch": 1, "batch_size": 64}
    printed |= {"samples_per_second": None, "dataset_samples": 60_000, "run_id": "printed"}
    found = table(rows, printed=[printed]).set_index("source")
    assert found.loc["measured", "seconds_per_epoch"] == 1 + 60_000 / 600 + 10_000 / 5000
    assert found.loc["published", "seconds_per_epoch"] == 33.4
    assert pandas.isna(found.loc["published", "images_per_second"])
    other = [row | {"batch_size": 256} for row in rows]
    assert pandas.isna(spoken(other, printed=[printed])["seconds_per_epoch"])
