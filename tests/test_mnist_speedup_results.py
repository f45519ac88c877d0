"""Tables of the MNIST study against sums done by hand; charts that draw whatever there is, the same each time."""

import functools

import matplotlib
import numpy
import pandas
import pytest

from benchbook.record import articles
from benchbook.studies import figures, quantities
from benchbook.studies.mnist_speedup import charts, results, tables
from benchbook.studies.study import Evidence
from rows import make_row, make_rows

CHARTS = {chart.name.removeprefix("mnist-"): chart for chart in results.STUDY.charts}


def point(rates, machine="desk", device="cpu", loader="reference", test_rate=5000.0, **columns):
    """Return the rows of a run as the study writes them: set-up, first call, warm-up, windows, test."""
    batch_size, dataset = columns.get("batch_size", 64), columns.get("dataset", "mnist")
    name = f"{loader}-{device}-{batch_size}-{dataset}"
    common = {
        "machine": machine,
        "device": device,
        "point": name,
        "run_id": f"{machine}-{name}",
        "session": f"{machine}-{name}",
        "variant": "reference" if loader == "reference" else "controlled",
        "settings": '{"data_resident": true}' if loader == "resident" else '{"data_resident": false}',
    } | columns
    early = {"batch_size": None, "samples": None, "samples_per_second": None, "input_seconds": None}
    windows = [make_row(index=index, samples_per_second=float(rate), **common) for index, rate in enumerate(rates)]
    return [
        make_row(**common | early, phase="setup", seconds=0.25),
        make_row(**common, phase="compile", seconds=1.5, samples_per_second=40.0),
        make_row(**common, phase="warmup", seconds=100.0, samples_per_second=1.0),
        *windows,
        make_row(**common, phase="evaluate", samples_per_second=test_rate, accuracy=0.9),
    ]


@functools.cache
def published_rows():
    return articles.rows()


def evidence(*points, published=True):
    """Return the evidence of these points, beside what articles printed."""
    rows = make_rows([row for rows in points for row in rows])
    return Evidence(pandas.concat([rows, published_rows()], ignore_index=True) if published else rows)


def measured(*points):
    return evidence(*points, published=False)


def one_machine(machine="desk", device="cpu", faster=1):
    return [
        point([1000 * faster, 1200 * faster, 1600 * faster], machine, device),
        point([2000 * faster], machine, device, "equal loader"),
        point([2500 * faster], machine, device, "resident"),
        point([3200 * faster], machine, device, "resident", batch_size=256),
    ]


def two_machines():
    return [*one_machine(), *one_machine("attic"), *one_machine("attic", "cuda", 4)]


INPUTS = {"no_rows": list, "one_machine": one_machine, "two_machines": two_machines}


@functools.cache
def drawn(name, rows, published=True):
    return CHARTS[name].draw(evidence(*INPUTS[rows](), published=published))


def draw(name, *points):
    """Return a chart's axes and its table."""
    drawing = CHARTS[name].draw(evidence(*points))
    return drawing.figure.axes[0], drawing.table


def title(axes):
    return axes.get_title(loc="left")


def line_of(table, **columns):
    """Return the only line with these values."""
    matching = table[numpy.logical_and.reduce([table[name] == value for name, value in columns.items()])]
    assert len(matching) == 1
    return matching.iloc[0]


def test_an_epoch_is_the_sum_of_its_parts():
    line = tables.epochs(measured(point([1000, 1200, 1600]))).iloc[0]
    assert line["setup_seconds"] == 0.25 + 1.5
    assert line["train_seconds"] == pytest.approx(60_000 / 1200)
    assert line["evaluate_seconds"] == 10_000 / 5000
    assert line["seconds"] == pytest.approx(1.75 + 50 + 2)
    assert (line["low"], line["high"]) == pytest.approx((1.75 + 37.5 + 2, 1.75 + 60 + 2))
    assert line[["source", "loader", "num_windows", "interval"]].tolist() == ["measured", "reference", 3, "range"]


def test_each_part_of_an_epoch_is_the_median_over_its_runs():
    runs = [point([1000], test_rate=rate, run_id=f"run-{rate}", session="one") for rate in (1000.0, 4000.0, 5000.0)]
    runs[2][0]["seconds"] = 9.0  # one slow set-up
    line = tables.epochs(measured(*runs)).iloc[0]
    assert (line["setup_seconds"], line["evaluate_seconds"], line["num_windows"]) == (1.75, 2.5, 3)


def test_an_epoch_without_a_test_has_no_test_seconds_and_judges_no_claim():
    untested = measured(point([1000])[:-1])
    line = tables.epochs(untested).iloc[0]
    assert pandas.isna(line["evaluate_seconds"])
    assert line["seconds"] == pytest.approx(1.75 + 60)
    assert results.STUDY.quantities(untested) == []


def test_an_epoch_is_taken_from_the_last_session_and_the_articles_batch_size():
    rows = [
        *point([500], run_id="20260101-a", session="a"),
        *point([1000], run_id="20260102-b", session="b"),
        *point([4000], batch_size=256),
    ]
    epochs = tables.epochs(measured(rows))
    assert epochs["train_seconds"].tolist() == pytest.approx([60])
    assert epochs["num_windows"].tolist() == [1]


def test_a_point_that_failed_before_its_windows_is_a_line_without_seconds():
    failed = make_row(phase="setup", status="unavailable", samples_per_second=None, batch_size=None, seconds=None)
    line = tables.epochs(measured([failed])).iloc[0]
    assert line[["setup_seconds", "train_seconds", "seconds", "low", "high"]].isna().all()
    assert (line["status"], line["num_windows"], line["verdict"]) == ("unavailable", 0, None)


@pytest.mark.parametrize(("printed", "half"), [(33.4, 0.05), (19.6, 0.05), (33.45, 0.005), (0.125, 0.0005)])
def test_a_published_figure_stands_for_half_a_unit_of_its_last_digit_either_way(printed, half):
    row = make_row(source="published", phase="total", seconds=printed, samples_per_second=None)
    line = tables.epochs(measured([row])).iloc[0]
    assert (line["low"], line["seconds"], line["high"]) == pytest.approx((printed - half, printed, printed + half))
    assert line[["setup_seconds", "train_seconds", "evaluate_seconds"]].isna().all()


def test_the_published_epochs_are_the_articles_four():
    epochs = tables.epochs(evidence())
    seconds = {(line["machine"], line["device"]): line["seconds"] for line in epochs.to_dict("records")}
    assert seconds == {
        ("m1-mac-16gb", "cpu"): 33.4,
        ("m1-mac-16gb", "mps"): 19.6,
        ("p100-server-256gb", "cpu"): 34.2,
        ("p100-server-256gb", "cuda"): 20.4,
    }
    assert set(epochs["source"]) == {"published"}


def test_loaders_are_told_apart_and_stand_in_the_order_of_the_question():
    epochs = tables.epochs(measured(*reversed(one_machine())))
    assert epochs["loader"].tolist() == ["reference", "equal loader", "resident"]


def test_a_speedup_is_cpu_seconds_over_accelerator_seconds_with_the_bounds_of_both():
    points = point([1000, 1200, 1600]), point([4000, 5000, 8000], device="cuda")
    speedups = tables.speedups(tables.epochs(evidence(*points)))
    line = line_of(speedups, machine="desk")
    other = 1.75 + 2  # set-up, first call and test, the same for both
    cpu, cuda = (60 + other, 50 + other, 37.5 + other), (15 + other, 12 + other, 7.5 + other)
    assert line[["low", "speedup", "high"]].tolist() == pytest.approx(
        [cpu[2] / cuda[0], cpu[1] / cuda[1], cpu[0] / cuda[2]]
    )
    published = line_of(speedups, machine="m1-mac-16gb")
    assert published[["low", "speedup", "high"]].tolist() == pytest.approx([33.35 / 19.65, 33.4 / 19.6, 33.45 / 19.55])
    assert (line["interval"], published["interval"]) == ("range", "rounding")


def test_the_bounds_of_a_speedup_do_not_divide_the_ends_of_two_intervals():
    times = {
        "machine": "desk",
        "framework": "torch",
        "variant": "reference",
        "loader": "reference",
        "dataset": "mnist",
        "source": "measured",
    }
    times |= {"status": "ok", "num_windows": 18, "verdict": "stable", "interval": "interval"}
    cpu = times | {"device": "cpu", "seconds": 50.0, "low": 40.0, "high": 62.5}
    cuda = times | {"device": "cuda", "seconds": 10.0, "low": 8.0, "high": 12.5}
    line = tables.speedups(pandas.DataFrame([cpu, cuda])).iloc[0]
    width = numpy.exp(2**0.5 * numpy.log(1.25))  # independent errors of logarithms add in squares
    assert line[["low", "speedup", "high"]].tolist() == pytest.approx([5 / width, 5, 5 * width])


def test_a_speedup_compares_the_same_machine_loader_and_data_set_alone():
    points = [
        point([1000]),
        point([4000], machine="attic", device="cuda"),
        point([4000], device="cuda", loader="resident"),
        point([4000], device="cuda", dataset="digits-28px"),
    ]
    assert tables.speedups(tables.epochs(measured(*points))).empty


def test_embedded_digits_are_shown_but_never_judge_a_claim():
    both = measured(point([1000]), point([9000], device="cuda", dataset="digits-28px"))
    assert tables.epochs(both)["dataset"].tolist() == ["mnist", "digits-28px"]
    claimed = results.STUDY.quantities(both)
    assert [(line["name"], line["value"]) for line in claimed] == [("cpu_seconds", pytest.approx(1.75 + 60 + 2))]


def test_quantities_are_those_of_the_articles_loaders():
    gathered = quantities.gather(evidence(*two_machines()), [results.STUDY])
    gathered = gathered[gathered["name"].str.endswith("_seconds")]
    named = {(line["machine"], line["name"]): line["value"] for line in gathered.to_dict("records")}
    assert named == pytest.approx(
        {
            ("desk", "cpu_seconds"): 53.75,
            ("attic", "cpu_seconds"): 53.75,
            ("attic", "accelerator_seconds"): 60_000 / 4800 + 3.75,
            ("m1-mac-16gb", "cpu_seconds"): 33.4,
            ("m1-mac-16gb", "accelerator_seconds"): 19.6,
            ("p100-server-256gb", "cpu_seconds"): 34.2,
            ("p100-server-256gb", "accelerator_seconds"): 20.4,
        }
    )
    assert len(gathered) == len(named)


def test_an_epochs_seconds_are_known_by_machine_and_point():
    seconds = results.STUDY.epoch_seconds(evidence(point([1000]), point([2000], device="cuda")))
    assert seconds == pytest.approx(
        {("desk", "reference-cpu-64-mnist"): 63.75, ("desk", "reference-cuda-64-mnist"): 33.75}
    )


def test_the_input_share_is_what_a_resident_batch_would_save():
    shares = tables.shares(measured(*one_machine())).set_index("loader")
    assert shares["share"].to_dict() == pytest.approx({"reference": 1 - 1200 / 2500, "equal loader": 1 - 2000 / 2500})
    assert shares["waited"].to_dict() == {"reference": 0.25, "equal loader": 0.25}


def test_the_input_share_is_missing_without_a_resident_point_of_the_same_device_and_data():
    points = [
        point([1200]),
        point([2500], machine="attic", loader="resident"),
        point([2500], device="cuda", loader="resident"),
        point([2500], loader="resident", dataset="digits-28px"),
        point([2500], loader="resident", batch_size=256),
    ]
    shares = tables.shares(measured(*points))
    assert len(shares) == 1
    assert shares["share"].isna().all()


@pytest.mark.parametrize(("fastest", "part"), [("attic", "about half"), ("desk", "about a fifth")])
def test_the_finding_tells_the_input_share_of_the_machine_that_it_names(fastest, part):
    points = []
    for machine, resident in (("attic", 2.0), ("desk", 1.25)):  # times as fast as with the article's loader
        rate, chip = 1000.0 * (3 if machine == fastest else 1), f"Chip {machine}"
        points += [
            point([rate], machine, chip=chip),
            point([1.01 * rate], machine, loader="equal loader", chip=chip),
            point([resident * rate], machine, loader="resident", chip=chip),
        ]
    finding = results.STUDY.finding(measured(*points))
    assert f"a Chip {fastest}, the fastest of 2 machines" in finding
    assert f"The loader accounts for {part} of a training step." in finding
    unknown = results.STUDY.finding(measured(*points, point([9000.0], "cellar", chip="Chip cellar")))
    assert "a Chip cellar, the fastest of 3 machines" in unknown
    assert "The loader accounts for" not in unknown


def test_the_finding_tells_the_speedup_of_the_machine_that_it_names():
    attic = [point([1000], "attic"), point([4000], "attic", "cuda")]
    desk = [point([6000], "desk"), point([8000], "desk", "cuda")]
    [ratio] = tables.speedups(tables.epochs(measured(*desk)))["speedup"]
    for points in (desk, [*attic, *desk]):
        assert f"Its accelerator is {ratio:.2f} times as fast" in results.STUDY.finding(measured(*points))
    assert "accelerator" not in results.STUDY.finding(measured(*attic, desk[0]))


def test_the_bounds_of_an_input_share_are_the_farthest_that_both_ranges_allow():
    points = point([900, 1000, 1100]), point([2000, 2500], loader="resident")
    line = tables.shares(measured(*points)).iloc[0]
    shares = line[["share_low", "share", "share_high"]].tolist()
    assert shares == pytest.approx([1 - 1100 / 2000, 1 - 1000 / 2250, 1 - 900 / 2500])
    assert line[["waited_low", "waited_high", "num_windows"]].tolist() == [0.25, 0.25, 3]


def test_tables_carry_the_verdict_with_what_the_conditions_add():
    steady = [1000, 1001, 999, 1000, 1002, 998]
    rows = make_rows(point(steady) + point(steady, device="cuda"))
    assert [verdict.kind for verdict in tables.epochs(Evidence(rows))["verdict"]] == ["stable", "stable"]
    state = {"run_id": "desk-reference-cpu-64-mnist", "index": 0, "power_source": "battery"}
    judged = Evidence(rows, pandas.DataFrame([state | {"awake_seconds": 0.0, "elapsed_seconds": 0.0}]))
    epochs = tables.epochs(judged)
    assert [verdict.reasons for verdict in epochs["verdict"]] == [(("battery",),), ()]
    assert tables.speedups(epochs)["verdict"].item().kind == "unstable"
    bars = CHARTS["epochs"].draw(judged).figure.axes[0].patches
    assert {bar.get_hatch() for bar in bars} == {None, "///"}


def test_step_times_are_split_by_a_line_through_resident_points():
    seconds = {size: 4e-3 + 5e-5 * size for size in (64, 16, 256)}
    points = [point([size / time], loader="resident", batch_size=size) for size, time in seconds.items()]
    steps = tables.step_times(measured(*points, point([1]), point([1], loader="equal loader")))
    assert steps["batch_size"].tolist() == [16, 64, 256]
    assert steps["seconds_per_step"].tolist() == pytest.approx([seconds[size] for size in (16, 64, 256)])
    assert steps["fixed_seconds"].tolist() == pytest.approx([4e-3] * 3)
    assert steps["seconds_per_image"].tolist() == pytest.approx([5e-5] * 3)


def test_the_bounds_of_a_step_time_are_those_of_its_rate():
    points = [point([100, 200, 400], loader="resident", batch_size=size) for size in (100, 200)]
    steps = tables.step_times(measured(*points))
    bounds = steps[["low", "seconds_per_step", "high"]].to_numpy()
    assert bounds == pytest.approx(numpy.array([[0.25, 0.5, 1.0], [0.5, 1.0, 2.0]]))


def test_a_machine_with_one_batch_size_has_no_step_times():
    assert tables.step_times(measured(point([100], loader="resident"))).empty


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("rows", INPUTS)
@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_draws_what_there_is(name, rows, published):
    drawing = drawn(name, rows, published)
    drawing.figure.draw_without_rendering()  # a chart that does not fit its figure warns here
    axes = drawing.figure.axes[0]
    assert title(axes)
    assert axes.get_xlabel()
    assert title(axes) in drawing.alt


def words(axes):
    return [text.get_text().strip() for text in axes.texts]


def bars(axes):
    """Return the lengths of the bars that are there, without the empty ones."""
    return sorted(patch.get_width() for patch in axes.patches if patch.get_width() > 0)


def test_the_epoch_chart_draws_each_epoch_once_and_its_parts_end_where_it_does():
    axes, table = draw("epochs", *one_machine())
    parts = table[["setup_seconds", "train_seconds", "evaluate_seconds"]].to_numpy(float).ravel()
    published = table.loc[table["source"] == "published", "seconds"]
    assert bars(axes) == pytest.approx(sorted([*parts[~numpy.isnan(parts)], *published]))
    ends = {round(patch.get_x() + patch.get_width(), 6) for patch in axes.patches}
    assert {round(seconds, 6) for seconds in table["seconds"]} <= ends
    assert words(axes) == ["20.4 s", "34.2 s", "19.6 s", "33.4 s", "27.8 s, n=1", "33.8 s, n=1", "53.8 s, n=3"]


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (two_machines(), ("s on a Chip A's GPU",)),
        ([point([1000], dataset="digits-28px")], ("64 s", "scaled up")),
        ([], ("not measured here yet",)),
    ],
)
def test_the_title_of_the_epoch_chart_names_the_fastest_with_the_articles_loaders(points, words):
    axes, _ = draw("epochs", *points)
    assert [word for word in words if word not in title(axes)] == []


def test_the_speedup_chart_shows_measured_beside_published():
    axes, table = draw("speedup", *two_machines())
    assert bars(axes) == pytest.approx(sorted(table["speedup"]))
    speedups = table.loc[table["source"] == "measured", "speedup"]
    assert f"{speedups.min():.1f} to {speedups.max():.1f} times" in title(axes)
    assert "1.70x" in words(axes)
    assert title(draw("speedup", *one_machine())[0]).startswith("Published: the GPU is 1.68 to 1.70 times")


def test_the_input_chart_shows_both_shares_in_numbers():
    axes, _ = draw("input-share", *one_machine())
    assert "20 to 52 %" in title(axes)
    assert words(axes) == ["20%, n=1", "25%, n=1", "52%, n=3", "25%, n=3"]
    assert " %" not in title(draw("input-share", point([1000]))[0])


def test_the_step_chart_names_both_parts():
    points = [point([size / (4e-3 + 5e-5 * size)], loader="resident", batch_size=size) for size in (16, 256)]
    axes, _ = draw("step-time", *points)
    assert "4.0 ms before" in title(axes)
    line = next(line for line in axes.lines if line.get_xdata()[0] == 0)
    assert line.get_ydata() == pytest.approx([4.0, 4.0 + 0.05 * 256])


def test_published_bars_are_grey_and_a_cpu_does_not_look_like_an_accelerator():
    axes, _ = draw("epochs", *two_machines())
    grey = matplotlib.colors.to_rgba(figures.COLOURS["published"])
    assert sorted(bar.get_width() for bar in axes.patches if bar.get_facecolor() == grey) == [19.6, 20.4, 33.4, 34.2]
    assert figures.colour("cpu") != figures.colour("cuda") == figures.colour("mps")
    assert len(set(figures.COLOURS.values())) == len(figures.COLOURS)


def test_the_same_rows_give_the_same_bytes(tmp_path):
    for folder in ("first", "second"):
        for name, chart in CHARTS.items():
            chart.draw(evidence(*two_machines())).save(tmp_path / folder, name)
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert files == sorted(f"{name}.{ending}" for name in CHARTS for ending in ("csv", "json", "svg"))
    for file in files:
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_a_saved_table_comes_back_with_all_digits(tmp_path):
    table = pandas.DataFrame({"machine": ["desk", "attic"], "seconds": [1 / 3, None], "message": [None, "späť"]})
    figures.save_table(table, tmp_path / "new", "table")
    read = pandas.read_csv(tmp_path / "new" / "table.csv")
    assert read["seconds"][0] == 1 / 3
    assert pandas.isna(read.loc[1, "seconds"])
    assert read["message"][1] == "späť"


def test_the_house_style_ends_with_its_block():
    before = matplotlib.rcParams["font.size"], matplotlib.rcParams["svg.hashsalt"]
    with figures.style():
        assert matplotlib.rcParams["svg.hashsalt"] == "benchbook"
    assert (matplotlib.rcParams["font.size"], matplotlib.rcParams["svg.hashsalt"]) == before


def test_frameworks_on_one_device_are_points_of_their_own_and_no_ratio_mixes_them():
    points = [
        point([1000]),
        point([3000], device="metal", framework="mlx"),
        point([2000], loader="resident"),
        point([6000], loader="resident", device="metal", framework="mlx"),
    ]
    evidence = measured(*points)
    times = tables.epochs(evidence)
    assert len(times) == 4
    assert tables.speedups(times).empty
    assert [quantity["name"] for quantity in tables.quantities(evidence)] == ["cpu_seconds"]  # as the article
    labels = [label.get_text() for label in charts.epochs(evidence).figure.axes[0].get_yticklabels()]
    assert any("GPU" in label and label.endswith("reference, mlx") for label in labels)
