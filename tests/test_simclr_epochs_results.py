"""Tables of the SimCLR study against sums done by hand; charts that draw whatever there is, the same each time."""

import json

import numpy
import pytest

from benchbook.record import articles
from benchbook.studies.simclr_epochs import charts, matrix, results, tables
from benchbook.studies.study import Evidence
from rows import make_row, make_rows

CHARTS = {chart.name: chart for chart in results.STUDY.charts}


def point(variant="reference", rates=(50.0, 60.0, 80.0), evaluation_rate=200.0, device="cpu", **columns):
    """Return the rows of a run: windows of one step, an evaluation of 1,000 images, one step on ready batches."""
    settings = {"seed": columns.pop("seed", 0), "joint_views": columns.pop("joint_views", False)}
    settings |= {"chosen": variant} if variant == "tuned" else {}
    resident = columns.pop("resident", 75.0)
    name = f"{variant}-{device}-{settings['seed']}-{columns.get('dataset', 'cifar10')}"
    common = {
        "study": "simclr_epochs",
        "model": "simclr_resnet18",
        "variant": variant,
        "device": device,
        "point": name,
        "run_id": name,
        "session": name,
        "precision": "fp32",
        "compiled": False,
        "dataset": "cifar10",
        "dataset_samples": 50_000,
        "batch_size": 128,
        "settings": json.dumps(settings),
        "epoch": 1,
    } | columns
    tried = common | {"settings": json.dumps(settings | {"tried": "resident"})}
    window = {"samples": 128, "seconds": 2.0, "input_seconds": 0.5}
    rows = [make_row(**common | window, index=i, samples_per_second=rate) for i, rate in enumerate(rates)]
    rows += [make_row(**common, phase="compile", samples=128, samples_per_second=1.0)]
    rows += [
        make_row(
            **common,
            phase="evaluate",
            samples=1000,
            samples_per_second=evaluation_rate,
            accuracy=0.25,
            accuracy_metric="knn",
        )
    ]
    return [*rows, make_row(**tried, phase="calibrate", samples=128, samples_per_second=resident)] if resident else rows


def cell(precision, compiled, rate=None, status="ok", message=None, index=0, **columns):
    """Return a row of the matrix."""
    base = point()[0] | {"settings": '{"tried": "matrix"}', "phase": "calibrate", "batch_size": 8, "index": index}
    timed = {"samples": 8, "samples_per_second": rate} if rate else dict.fromkeys(("samples", "samples_per_second"))
    own = {"precision": precision, "compiled": compiled, "status": status, "message": message}
    own |= dict.fromkeys(("point", "run_id", "session"), "matrix")
    return base | timed | own | columns


MATRIX = [
    cell("fp32", False, 10.0),
    cell("fp32", False, 20.0, index=1),
    cell("amp_bf16", False, 45.0, index=2),
    cell("amp_fp16", False, status="unsupported", message="RuntimeError: no half | here", index=3),
    cell("fp16", False, status="diverged", message="the first loss is not finite", index=4),
    cell("fp32", True, 30.0, index=5),
]
PUBLISHED = make_row(
    study="simclr_epochs",
    machine="a-mac",
    chip="Apple M1 Pro",
    source="published",
    phase="total",
    device="mps",
    dataset="cifar10",
    precision="fp32",
    batch_size=128,
    settings='{"epochs": 1, "rounding": {"seconds": 0.3}}',
    seconds=405.0,
    samples=49_920,
    samples_per_second=None,
    run_id="published",
    point="reference-mps",
)
INPUTS = {
    "nothing": [],
    "published": [PUBLISHED],
    "one point": point(),
    "all": [*point(), *point("tuned", (150.0,), device="cuda"), *MATRIX, PUBLISHED],
}


def evidence(rows):
    return Evidence(make_rows(rows))


def axes_of(name, rows):
    return CHARTS[name].draw(evidence(rows)).figure.axes[0]


def title(name, rows):
    return axes_of(name, rows).get_title(loc="left")


def test_an_epoch_is_390_steps_and_the_evaluation_of_60_000_images():
    line = tables.epochs(evidence(point())).iloc[0]
    assert line["train_minutes"] == pytest.approx(49_920 / 60 / 60)
    assert line["evaluate_minutes"] == pytest.approx(60_000 / 200 / 60)
    assert line["minutes"] == pytest.approx(49_920 / 60 / 60 + 5)
    assert (line["low"], line["high"]) == pytest.approx((49_920 / 80 / 60 + 5, 49_920 / 50 / 60 + 5))


def test_a_published_epoch_stands_for_half_its_last_digit_and_many_epochs_are_none():
    many = PUBLISHED | {"settings": '{"epochs": 200}', "seconds": 5862.0, "point": "many"}
    derived = PUBLISHED | {"source": "derived", "point": "derived"}
    line = tables.epochs(evidence([PUBLISHED, many, derived]))
    assert len(line) == 1
    assert line.iloc[0][["minutes", "low", "high"]].tolist() == pytest.approx([6.75, 6.745, 6.755])


def test_the_published_epochs_are_the_articles_three():
    published = Evidence(articles.rows())
    assert tables.epochs(published)["minutes"].tolist() == pytest.approx([0.49, 59.3, 6.75])
    assert tables.accuracies(published)["accuracy"].max() == 0.847


def test_points_of_another_batch_size_have_no_epoch_and_the_longer_of_two_alike_counts():
    assert tables.epochs(evidence(point(batch_size=64))).empty
    short, long = point(rates=(10.0,), seed=1), point(rates=(20.0, 20.0), seed=2)
    assert tables.epochs(evidence(short + long))["train_minutes"].tolist() == pytest.approx([49_920 / 20 / 60])


def test_joint_views_are_a_variant_of_their_own():
    epochs = tables.epochs(evidence([*point("tuned"), *point("tuned", joint_views=True, seed=1)]))
    assert epochs["variant"].tolist() == ["tuned", "tuned, joint views"]


def test_the_inputs_share_is_what_ready_batches_would_save():
    line = tables.shares(evidence(point())).iloc[0]
    assert line["share"] == pytest.approx(1 - 60 / 75)
    assert line["waited"] == pytest.approx(0.25)
    assert tables.shares(evidence(point(resident=None)))["share"].isna().all()


@pytest.mark.parametrize(("fastest", "share"), [("attic", "50 %"), ("desk", "20 %")])
def test_the_finding_tells_the_inputs_share_of_the_machine_and_the_way_that_it_names(fastest, share):
    rows = []
    for machine, ready in (("attic", 2.0), ("desk", 1.25)):  # times as fast as with the article's input
        rate, own = 60.0 * (3 if machine == fastest else 1), {"machine": machine, "chip": f"Chip {machine}"}
        rows += point("controlled", (0.9 * rate,), resident=ready * rate, **own)  # comes first by its name
        rows += point(rates=(rate,), resident=ready * rate, **own)
    finding = results.STUDY.finding(evidence(rows))
    assert f"a Chip {fastest}, the fastest of 2 machines" in finding
    assert f"Making two views of each image is {share} of a step." in finding
    other = point(rates=(900.0,), resident=None, machine="cellar", chip="Chip cellar")
    unknown = results.STUDY.finding(evidence([*rows, *other]))
    assert "a Chip cellar, the fastest of 3 machines" in unknown
    assert "Making two views" not in unknown


def test_the_matrix_is_speed_over_eager_fp32_of_the_same_run():
    cells = matrix.table(evidence(MATRIX)).set_index(["precision", "compiled"])
    assert cells["status"].tolist() == ["ok", "ok", "unsupported", "diverged", "ok"]
    assert cells.loc[("fp32", False), ["speedup", "low", "high"]].tolist() == pytest.approx([1, 10 / 15, 20 / 15])
    assert cells.loc[("amp_bf16", False), "speedup"] == pytest.approx(3)
    assert cells.loc[("fp32", True), "speedup"] == pytest.approx(2)
    assert cells.loc[("amp_fp16", False), "message"] == "RuntimeError: no half | here"
    assert cells.loc[("fp16", False), "speedup"] is None or numpy.isnan(cells.loc[("fp16", False), "speedup"])


def test_the_matrix_is_of_the_last_run_that_tried():
    later = [row | {"run_id": "z", "session": "z", "point": "later"} for row in MATRIX[:2]]
    assert len(matrix.table(evidence(MATRIX + later))) == 1


def test_events_are_what_was_tried_and_whether_it_worked():
    def events(rows):
        return matrix.events(matrix.table(evidence(rows)))

    assert events(MATRIX) == {"amp_refused": 0, "compile_refused": 0, "half_trained": 0}
    refused = [
        row | {"status": "unsupported"} if row["precision"] == "amp_bf16" or row["compiled"] else row for row in MATRIX
    ]
    assert events(refused) == {"amp_refused": 1, "compile_refused": 1, "half_trained": 0}
    assert events([*MATRIX[:2], cell("bf16", False, 12.0, index=2)]) == {"half_trained": 1}


def test_accuracy_stands_at_the_epochs_that_were_trained():
    rows = point(seed=0) + [row | {"accuracy": 0.35} if row["phase"] == "evaluate" else row for row in point(seed=1)]
    line = tables.accuracies(evidence(rows)).iloc[0]
    assert line["epochs"] == pytest.approx(3 * 128 / 49_920)
    assert line[["accuracy", "low", "high"]].tolist() == pytest.approx([0.3, 0.25, 0.35])
    assert line["num_seeds"] == 2


def test_accuracy_after_the_articles_epochs_and_memory_are_quantities_of_an_accelerator():
    rows = []
    for run, accuracy in enumerate((0.84, 0.85, 0.86)):
        common = point(device="cuda")[0] | {"run_id": f"run-{run}", "machine": "desk"}
        trained = {"phase": "train", "samples": 200 * 49_920, "peak_memory_bytes": 1_500_000_000}
        tested = {
            "phase": "evaluate",
            "accuracy": accuracy,
            "samples": None,
            "seconds": None,
            "samples_per_second": None,
        }
        rows += [common | trained, common | tested | {"index": 1}]
    values = {line["name"]: line for line in tables.trained(evidence(rows))}
    assert values["knn_accuracy"]["value"] == pytest.approx(0.85)
    assert values["knn_accuracy"]["interval"] == "interval"
    assert values["peak_memory_bytes"]["value"] == 1.5e9
    on_cpu = [row | {"device": "cpu"} for row in rows]
    assert tables.trained(evidence(on_cpu)) == []


def test_quantities_are_seconds_of_the_articles_loaders_on_cifar10():
    rows = [*point(), *point("tuned"), *point(dataset="shapes-32px", machine="other"), *point(device="cuda")]
    claimed = results.STUDY.quantities(evidence(rows))
    seconds = {(line["machine"], line["name"]): line["value"] for line in claimed}
    names = {"epoch": 1, "two_epochs": 2, "200_epochs": 200}
    expected = {
        ("desk", f"{place}_{name}_seconds"): count * (832 + 300)
        for place in ("cpu", "accelerator")
        for name, count in names.items()
    }
    assert seconds == pytest.approx(expected)
    assert {line["interval"] for line in claimed} == {"range"}  # of one kernel


def test_what_an_accelerator_refused_judges_claims_of_this_study_alone():
    refused = [row | {"device": "mps", "point": "mps", "status": "unsupported"} for row in MATRIX[2:4]]
    claimed = results.STUDY.quantities(evidence([*MATRIX, *refused]))
    assert {line["name"]: line["value"] for line in claimed} == {"amp_refused": 1}
    assert results.STUDY.quantities(evidence([row | {"study": "mnist_speedup"} for row in refused])) == []


@pytest.mark.parametrize("rows", INPUTS)
@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_draws_what_there_is(name, rows):
    drawing = CHARTS[name].draw(evidence(INPUTS[rows]))
    drawing.figure.draw_without_rendering()  # a chart that does not fit its figure warns here
    assert drawing.figure.axes[0].get_title(loc="left") in drawing.alt


@pytest.mark.parametrize("name", CHARTS)
def test_the_same_rows_give_the_same_picture(name):
    first, second = (CHARTS[name].draw(evidence(INPUTS["all"])).picture for _ in range(2))
    assert first == second


def test_titles_say_what_is_shown():
    assert "not measured" in title("simclr-epochs", INPUTS["nothing"])
    fastest = title("simclr-epochs", INPUTS["all"])
    assert f"{49_920 / 150 / 60 + 5:.0f} min on " in fastest
    assert "scaled up" in title("simclr-epochs", point(dataset="shapes-32px"))
    assert "amp_bf16 is 3.0 times as fast as plain fp32" in title("support", MATRIX)
    assert "of 3 that work" in title("support", MATRIX)
    assert "25 % after 0.0077 epochs" in title("simclr-accuracy", INPUTS["one point"])


def test_a_field_of_the_matrix_says_how_much_faster_or_what_went_wrong():
    words = [text.get_text() for text in axes_of("support", MATRIX).texts]
    assert {"1.00x\n0.67 to 1.33, n=2", "3.00x\n3.00 to 3.00, n=1", "2.00x\n2.00 to 2.00, n=1"} <= set(words)
    assert any("no half" in text.replace("\n", " ") for text in words)


def test_pairs_are_drawn_one_above_the_other():
    axes = charts.pairs(numpy.zeros((3, 4, 4, 3)), numpy.full((3, 4, 4, 3), 0.5)).figure.axes[0]
    assert axes.get_images()[0].get_array().shape == (8, 12, 3)
    assert "0.50 apart" in axes.get_title(loc="left")


def test_a_point_that_failed_before_it_had_data_is_drawn_without_them():
    unknown = ("dataset", "batch_size", "precision", "samples", "samples_per_second")
    row = make_row(study="simclr_epochs", status="crashed") | dict.fromkeys(unknown)
    labels = axes_of("simclr-epochs", [row]).get_yticklabels()
    assert [label.get_text() for label in labels] == ["Chip A, CPU\nreference"]


def test_the_reading_tells_what_input_took_and_what_was_learnt():
    text = charts.reading(evidence(point()))
    assert "20 %" in text
    assert "25 % after 0.0077 epochs" in text
    assert charts.reading(evidence([row for row in point() if row["phase"] == "compile"])) == ""
