"""Numbers of the studies against sums done by hand, each test for a fault that was or could be made."""

import re

import numpy
import pandas
import pytest

from benchbook.record import articles
from benchbook.studies import datasets
from benchbook.studies.calibrate import study as calibrate
from benchbook.studies.gpt_tokens import study as gpt
from benchbook.studies.mnist_speedup import study as mnist
from benchbook.studies.mobilenetv2_energy import study as mobilenetv2
from benchbook.studies.resnet50_cost import study as resnet50
from benchbook.studies.segmentation_scaling import study as segmentation
from benchbook.studies.simclr_epochs import study as simclr
from benchbook.studies.vae_stability import study as vae
from benchbook.studies.your_network import study as your_network
from rows import make_row
from study_rows import calibration, evidence, matrix, only, point, steps, tried


def loader(rates, name="reference", **columns):
    """Return an MNIST point with one of the loaders."""
    settings = {"data_resident": name == "resident"}
    return point(
        "mnist_speedup", rates, variant=name if name == "reference" else "controlled", settings=settings, **columns
    )


def named(quantities):
    return {line["name"]: line["value"] for line in quantities}


def title(drawing, panel=0):
    return drawing.figure.axes[panel].get_title(loc="left")


def words(drawing, panel=0):
    return [text.get_text().strip() for text in drawing.figure.axes[panel].texts]


def test_each_part_of_an_epoch_is_the_median_over_the_runs_of_the_last_session():
    runs = [loader([1000], run_id=f"run-{number}", session="two") for number in range(3)]
    for run, rate in zip(runs, (1000.0, 4000.0, 5000.0), strict=True):
        run[-1]["samples_per_second"] = rate
    runs[2][0]["seconds"] = 9.0  # one slow set-up
    earlier = loader([1], run_id="0", session="one")
    line = only(mnist.epochs(evidence(earlier, *runs, loader([4000], batch_size=256))))
    assert line[["setup_seconds", "evaluate_seconds", "num_windows"]].tolist() == [1.75, 2.5, 3]


def test_an_epoch_without_a_test_judges_no_claim_and_neither_do_other_digits():
    untested = evidence(point("mnist_speedup", (1000,), test=False))
    line = mnist.epochs(untested).iloc[0]
    assert pandas.isna(line["evaluate_seconds"])
    assert line["seconds"] == pytest.approx(1.75 + 60)
    assert mnist.STUDY.quantities(untested) == []
    assert mnist.STUDY.quantities(evidence(loader([1000], dataset="digits-28px"))) == []
    for change in ({"variant": "tuned"}, {"dataset": "shapes-32px"}, {"batch_size": 64}):
        assert simclr.STUDY.quantities(evidence(point("simclr_epochs", **change))) == []


def test_a_point_that_failed_before_its_windows_is_a_line_without_seconds():
    failed = make_row(phase="setup", status="unavailable", samples_per_second=None, batch_size=None, seconds=None)
    line = mnist.epochs(evidence([failed])).iloc[0]
    assert line[["setup_seconds", "train_seconds", "seconds", "low", "high"]].isna().all()
    assert (line["status"], line["num_windows"], line["verdict"]) == ("unavailable", 0, None)


def test_epochs_and_loaders_are_compared_on_one_machine_with_one_framework_and_data_set():
    for change in ({"machine": "attic"}, {"name": "resident"}, {"dataset": "digits-28px"}, {"framework": "mlx"}):
        other = loader([4000], device="cuda", **change)
        assert mnist.speedups(mnist.epochs(evidence(loader([1000]), other))).empty
    for change in ({"machine": "attic"}, {"device": "cuda"}, {"dataset": "digits-28px"}, {"batch_size": 256}):
        shares = mnist.shares(evidence(loader([1200]), loader([2500], "resident", **change)))
        assert shares["share"].isna().tolist() == [True]


def test_tables_carry_the_verdict_with_what_the_conditions_add():
    steady = [1000, 1001, 999, 1000, 1002, 998]
    runs = loader(steady), loader(steady, device="cuda")
    assert mnist.epochs(evidence(*runs))["verdict"].map(str).tolist() == ["too few processes"] * 2
    states = [
        {"run_id": run[0]["run_id"], "index": 0, "power_source": power, "awake_seconds": 0.0, "elapsed_seconds": 0.0}
        for run, power in zip(runs, ("battery", "mains"), strict=True)
    ]
    judged = evidence(*runs, conditions=pandas.DataFrame(states))
    assert mnist.epochs(judged)["verdict"].map(str).tolist() == ["unstable: on battery", "too few processes"]
    assert str(only(mnist.speedups(mnist.epochs(judged)))["verdict"]) == "unstable: on battery"
    bars = mnist.STUDY.charts[0].draw(judged).figure.axes[0].patches
    assert {bar.get_hatch() for bar in bars} == {None, "///"}


def test_a_line_through_resident_steps_splits_their_time_and_one_batch_size_makes_none():
    seconds = {size: 4e-3 + 5e-5 * size for size in (64, 16, 256)}
    both = evidence(*(loader([size / time], "resident", batch_size=size) for size, time in seconds.items()))
    fitted = mnist.step_times(both)[["fixed_seconds", "seconds_per_image"]].drop_duplicates().to_numpy().tolist()
    assert fitted == [pytest.approx([4e-3, 5e-5])]
    assert mnist.step_times(evidence(loader([100], "resident"))).empty


def test_the_epoch_chart_draws_each_epoch_once_and_its_parts_end_where_it_does():
    drawing = mnist.STUDY.charts[0].draw(evidence(loader([1200]), loader([2400], "resident"), published=True))
    table, bars = drawing.table, drawing.figure.axes[0].patches
    parts = table[["setup_seconds", "train_seconds", "evaluate_seconds"]].to_numpy(float).ravel()
    printed = table.loc[table["source"] == "published", "seconds"]
    drawn = sorted(bar.get_width() for bar in bars if bar.get_width() > 0)
    assert drawn == pytest.approx(sorted([*parts[~numpy.isnan(parts)], *printed]))
    ends = {round(bar.get_x() + bar.get_width(), 6) for bar in bars}
    assert {round(seconds, 6) for seconds in table["seconds"]} <= ends
    assert words(drawing)[:2] == ["19.6 s", "20.4 s"]


def test_the_last_calibration_of_each_device_counts():
    products = [calibration(rate) for rate in (4e9, 5e9, 6e9)] + [calibration(2e10, precision="bf16")]
    rows = [*products, calibration(2e10, model="copy"), calibration(1.0, "before")]
    both = evidence(rows)
    assert set(calibrate.ceilings(both)["session"]) == {"calibrated"}
    left = calibrate.STUDY.charts[0].draw(both)
    assert [bar.get_width() for bar in left.figure.axes[0].patches] == [2e-2, 5e-3]
    assert words(left) == ["20 GFLOP/s, n=1", "5 GFLOP/s, n=3"]


def test_rates_have_decimal_prefixes():
    texts = [calibrate.in_words(value / 1e12) for value in (2e15, 999.7e9, 5.9e10, 1.5e6, 2e3, 7)]
    assert texts == ["2 PFLOP/s", "1 TFLOP/s", "59 GFLOP/s", "1.5 MFLOP/s", "2 kFLOP/s", "7 FLOP/s"]


NET = "mobilenetv2_energy"


def test_of_equal_settings_the_longer_counts_and_none_that_failed():
    quick, whole = point(NET, (10,), point="quick", run_id="2"), point(NET, (20, 20), point="paper", run_id="1")
    assert mobilenetv2.settings(evidence(quick, whole))["images_per_second"].tolist() == [20]
    failed = point(NET, (), point="failed", ended="timeout")
    assert mobilenetv2.settings(evidence(failed, quick))["images_per_second"].tolist() == [10]
    midway = only(mobilenetv2.settings(evidence(point(NET, (50,), ended="crashed"))))
    assert midway[["images_per_second", "status"]].tolist() == [50, "crashed"]


def test_a_curve_is_each_windows_loss_at_its_middle_and_the_median_of_runs():
    runs = [
        point(NET, losses=losses, run_id=name, session="s") for name, losses in (("a", (2, 1, 0.5)), ("b", (4, 4, 4)))
    ]
    again = [row | {"repeat": 1} for row in runs[0]]
    curve = mobilenetv2.losses(evidence(*runs, again))
    assert curve["images_seen"].tolist() == [320, 960, 1600]
    assert curve["loss"].tolist() == [3.0, 2.5, 2.25]
    assert curve[["low", "high"]].to_numpy()[0].tolist() == [2.0, 4.0]
    assert curve["accuracy"].tolist() == [0.6] * 3


@pytest.mark.parametrize(
    ("columns", "verdict"),
    [
        ({}, "converged"),
        ({"losses": (2.0, 1.95, 1.94)}, "did not converge"),
        ({"accuracy": 0.24}, "did not converge"),
        ({"losses": (2.0, float("nan")), "status": "diverged"}, "did not converge"),
        ({"rates": (9.0,)}, "not judged"),
        ({"settings": {"weights": "random"}}, "not judged"),
        ({"dataset": "pets-jpeg"}, "not judged"),  # a folder of unknown classes, whose chance level is unknown
        ({"dataset": "cifar10-jpeg"}, "converged"),
    ],
)
def test_convergence_is_judged_by_the_stated_rule_on_frozen_points_alone(columns, verdict):
    assert only(mobilenetv2.convergence(evidence(point(NET, **columns))))["verdict"] == verdict
    trained = columns | {"settings": columns.get("settings", {}) | {"trainable": True}}
    assert mobilenetv2.convergence(evidence(point(NET, **trained))).empty


def test_quantities_are_of_the_articles_setting_on_an_accelerator():
    energy = {"energy_joules": 320.0, "energy_method": "nvml", "energy_boundary": "board"}
    whole = point(NET, (10, 20), settings={"trainable": True}, device="metal", **energy)
    others = [point(NET, device="metal", **change) for change in ({"batch_size": 32}, {"framework": "torch"})]
    others[1] = [row | {"loss": 2.0} for row in others[1]]  # another framework's is another event
    frozen = point(NET, (60,), device="metal")
    claimed = mobilenetv2.STUDY.quantities(evidence(whole, frozen, *others, point(NET)))
    assert named(claimed) == {"frozen_rate": 60, "rate": 15, "joules_per_image": 0.5, "frozen_diverged": 0}
    rate = next(line for line in claimed if line["name"] == "rate")
    assert [rate["low"], rate["high"], rate["interval"]] == [10, 20, "range"]
    stuck = named(mobilenetv2.STUDY.quantities(evidence(point(NET, losses=(2.0, 2.0), device="metal"))))
    assert stuck["frozen_diverged"] == 1
    slower = point(NET, losses=(2.0, 2.0), settings={"learning_rate": 1e-4}, device="metal")
    assert named(mobilenetv2.STUDY.quantities(evidence(slower))) == {"lower_rate_converged": 0}


def test_joules_are_shown_apart_by_what_they_cover():
    board = {"energy_joules": 320.0, "energy_method": "nvml", "energy_boundary": "board"}
    read = {"energy_joules": 640.0, "energy_method": "rapl", "energy_boundary": "package"}
    both = evidence(point(NET, (10, 20), **board), point(NET, (10, 20), **read, machine="attic"))
    assert mobilenetv2.settings(both)["joules_per_image"].tolist() == [1.0, 0.5]
    lines = mobilenetv2.settings(evidence(point(NET, (10, 20), **read), point(NET, (10, 20), machine="attic")))
    texts = {mobilenetv2.STUDY.charts[0].text(line) for line in lines.to_dict("records")}
    assert texts == {"15, 1 J an image (package)", "15"}


DIED = "the process was ended by SIGSEGV; it last printed: ..."


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({}, 1),
        ({"message": "the process was ended by SIGABRT"}, 1),
        ({"phase": "compile"}, 1),
        (None, 0),
        *(({"message": other}, None) for other in ("RuntimeError: SIGSEGV", "the process was ended by SIGKILL")),
        *(({"status": other}, None) for other in ("interrupted", "out_of_memory", "unavailable", "timeout")),
        ({"phase": "setup"}, None),
        ({"framework": "torch"}, None),
        ({"device": "cpu"}, None),
        ({"image_size": 160}, None),
        ({"variant": "tuned"}, None),
    ],
)
def test_the_articles_crash_is_a_fault_that_ends_tensorflow_while_it_trains_on_more_than_196_pixels(change, value):
    own = {"settings": {"trainable": True}, "device": "metal", "image_size": 224}
    last = {"message": DIED, "phase": "train"} | (change or {})
    rows = point(NET, (), ended="crashed", **own) if change is not None else point(NET, **own)
    rows = [row | (last if row["status"] == "crashed" else {}) for row in rows]
    shared = {name: last[name] for name in last.keys() - {"message", "phase", "status"}}
    found = named(mobilenetv2.STUDY.quantities(evidence([row | shared for row in rows])))
    assert found.get("crashed_over_196") == value


def test_an_event_in_some_processes_or_points_decides_nothing():
    own = {"settings": {"trainable": True}, "device": "metal", "image_size": 224}
    died = [row | {"run_id": "other", "message": DIED} for row in point(NET, (), ended="crashed", **own)]
    stuck = point(NET, losses=(2.0, 2.0), device="metal", batch_size=32)
    found = mobilenetv2.STUDY.quantities(evidence(point(NET, **own), died, point(NET, device="metal"), stuck))
    for line in found:
        if line["name"] in ("crashed_over_196", "frozen_diverged"):
            assert [line[name] for name in ("value", "low", "high", "note")] == [0.5, 0, 1, "in 1 of 2"]
    assert {"crashed_over_196", "frozen_diverged"} <= {line["name"] for line in found}


def test_the_matrix_is_of_the_last_run_that_tried():
    row = point("simclr_epochs")[3]
    later = [one | {"run_id": "z", "session": "z"} for one in matrix(row)[:2]]
    assert len(simclr.support_matrix(evidence(matrix(row), later))) == 1


def test_what_an_accelerator_refused_are_events_of_its_own_study():
    rows = [row | {"device": "mps"} for row in matrix(point("simclr_epochs")[3])]
    assert named(simclr.STUDY.quantities(evidence(rows))) == {"amp_refused": 0, "compile_refused": 0}
    refused = [
        row | {"status": "unsupported"} if row["compiled"] or row["precision"] == "amp_bf16" else row for row in rows
    ]
    assert named(simclr.STUDY.quantities(evidence(refused))) == {"amp_refused": 1, "compile_refused": 1}
    half = [*rows[:2], rows[2] | {"precision": "bf16"}]
    assert named(simclr.STUDY.quantities(evidence(half))) == {"half_trained": 1}
    assert simclr.STUDY.quantities(evidence([row | {"study": "mnist_speedup"} for row in refused])) == []
    assert simclr.STUDY.quantities(evidence([row | {"device": "cpu"} for row in refused])) == []


def test_accuracy_after_the_articles_epochs_and_memory_are_quantities_of_an_accelerator():
    rows = []
    for run, accuracy in enumerate((0.84, 0.85, 0.86)):
        own = {"device": "cuda", "run_id": f"run-{run}", "samples": 200 * 49_920, "peak_memory_bytes": 1_500_000_000}
        rows += point("simclr_epochs", (900,), accuracy=accuracy, session="s", **own)
    values = {line["name"]: line for line in simclr.STUDY.quantities(evidence(rows))}
    assert values["knn_accuracy"]["value"] == pytest.approx(0.85)
    assert values["knn_accuracy"]["interval"] == "interval"
    assert values["peak_memory_bytes"]["value"] == 1.5e9
    assert not {"knn_accuracy", "peak_memory_bytes"} & set(
        named(simclr.STUDY.quantities(evidence([row | {"device": "cpu"} for row in rows])))
    )


def test_divergence_and_first_losses_are_of_the_articles_own_run():
    broken = {"losses": [float("nan")], "status": "diverged", "rates": (900,)}
    runs = point("vae_stability"), point("vae_stability", device="mps", **broken)
    other = point("vae_stability", device="cuda", dataset="digits", **broken)
    assert named(vae.STUDY.quantities(evidence(*runs, other))) == {"cpu_trained": 1, "diverged": 1}
    first = evidence(steps([0.0] * 11, device="mps"), steps([0.1] * 11))
    assert named(vae.STUDY.quantities(first)) == {"first_loss": 500.0, "loss_after_10_steps": 500.0}


def test_pictures_and_the_reading_say_how_far_off_they_are():
    images = numpy.zeros((5, 28, 28))
    for reconstructed, said in ((images + 0.25, "0.250"), (images * numpy.nan, "5 of 5")):
        drawn = {"test image": images, "reconstruction": reconstructed, "sample": images}
        assert said in title(vae.pictures(drawn))
    assert "0.50 apart" in title(simclr.pairs(numpy.zeros((3, 4, 4, 3)), numpy.full((3, 4, 4, 3), 0.5)))
    losses = point("vae_stability", losses=[150.0, 130.0, 106.4])
    assert re.findall(r"\d+ an image", title(vae.STUDY.charts[0].draw(evidence(losses)))) == ["106 an image"]
    own = point("simclr_epochs", (64, 60, 62), accuracy=0.25)
    assert "not distinguishable from 0" in simclr.reading(evidence(own, tried(own[3], "resident", (75.0,))))


@pytest.mark.parametrize("change", [{"image_size": 128}, {"settings": {"width": 0.5}}])
def test_no_finding_reports_a_smaller_network(change):
    times = segmentation.image_times(evidence(point("segmentation_scaling", **change)))
    assert times["note"].tolist() == [segmentation.SMALLER]
    assert segmentation.STUDY.charts[0].title.line(times) is None


def test_masks_are_drawn_over_their_images_with_their_overlap():
    data = datasets.triangles(5, 2, 128)
    triangles = data.test_labels == 1
    before, after = (numpy.stack([triangles[0] & keeps, triangles[1] & keeps]) for keeps in (False, True))
    rows = {"image": data.test_images, "triangle": triangles, "before training": before, "after training": after}
    drawing = segmentation.pictures(rows)
    assert re.findall(r"\d\.\d\d", title(drawing)) == ["0.00", "1.00"]
    [shown] = [image.get_array() for image in drawing.figure.axes[0].images]
    plain, masked = numpy.split(shown, 2)
    coloured = numpy.ptp(masked, axis=2) > 0
    assert numpy.ptp(plain, axis=2).max() == 0
    numpy.testing.assert_array_equal(coloured, numpy.hstack(triangles))
    assert segmentation.iou(before[0], before[0]) == 1


def gpus(batch_size=64, rates=(90.0, 100.0, 110.0), count=1, stated=None, **columns):
    """Return a ResNet-50 point on GPUs."""
    own = {"device": "cuda", "batch_size": batch_size, "device_count": count} | columns
    return point("resnet50_cost", rates, settings=stated, test=False, **own)


def test_a_price_in_another_currency_prices_no_images():
    in_euros = articles.prices().assign(currency="EUR")
    assert resnet50.costs(evidence(gpus(), published=True, prices=in_euros)).empty


@pytest.mark.parametrize(("boundary", "is_noted"), [("board", True), ("wall", False)])
def test_electricity_is_a_cost_within_its_boundary(boundary, is_noted):
    stated = {"electricity_per_kwh": 0.3}
    energy = {"energy_joules": 12_800.0, "energy_method": "nvml", "energy_boundary": boundary}
    windows = gpus(stated=stated, **energy)
    both = evidence(windows, published=True)
    cost = only(resnet50.costs(both), machine="desk")
    assert cost["per_hour"] == pytest.approx(12_800 / 640 * 100 / 1000 * 0.3)
    assert (cost["kind"], cost["energy_boundary"], bool(cost["note"])) == ("electricity", boundary, is_noted)
    rented = only(resnet50.costs(both), machine="cloud-tpu-v2-8", dataset="synthetic")
    assert (pandas.isna(rented["energy_boundary"]), rented["note"]) == (True, "")


def accuracy_run(accuracies, joules=10.0, stated=None, **columns):
    """Return a run of epochs of 100 seconds, each with its test."""
    base = gpus(stated=stated, dataset="imagenet", **columns)[3] | {"run_id": "r", "point": "r", "session": "r"}
    energy = {"energy_joules": joules, "energy_method": "nvml", "energy_boundary": "board"} if joules else {}
    rows = []
    for epoch, accuracy in enumerate(accuracies, start=1):
        rows.append(base | {"epoch": epoch, "index": epoch, "seconds": 100.0, "loss": 1 / epoch} | energy)
        rows.append(base | {"phase": "evaluate", "epoch": epoch, "index": epoch, "accuracy": accuracy, "seconds": 7.0})
    return rows


def test_time_energy_and_money_to_an_accuracy_are_read_off_the_raw_curve():
    curve = resnet50.curves(evidence(accuracy_run([0.2, 0.6, 0.5, 0.7], stated={"price_per_hour": 36.0})))
    assert curve["hours"].tolist() == pytest.approx([hour / 36 for hour in (1, 2, 3, 4)])
    assert curve["dollars"].tolist() == pytest.approx([1, 2, 3, 4])
    ends = ["epoch", "hours", "joules", "dollars"]
    assert only(resnet50.to_target(curve, 0.55))[ends].tolist() == pytest.approx([2, 2 / 36, 20, 2])
    missed = only(resnet50.to_target(curve, 0.71))
    assert missed[ends].isna().all()
    assert missed["best_accuracy"] == 0.7
    unread = resnet50.curves(evidence(accuracy_run([0.2], joules=None)))
    assert unread[["joules", "dollars"]].isna().all(axis=None)


def loss_run(losses, tested=0, **columns):
    """Return a run of 250 steps in a minute each, with a test after it on so many sequences; 0: on all."""
    base = {"study": "gpt_tokens", "model": "nanogpt_char_small", "dataset": "tinyshakespeare", "sequence_length": 64}
    base |= {"run_id": f"r{tested}", "point": "p", "session": "s", "settings": {"num_test_sequences": tested}} | columns
    rows = []
    for epoch, loss in enumerate(losses, start=1):
        place = base | {"epoch": epoch, "index": epoch}
        rows.append(make_row(**place, phase="train", steps=250, seconds=60.0, samples=3000, samples_per_second=50.0))
        rows.append(make_row(**place, phase="evaluate", loss=loss, seconds=5.0, samples=tested or 1742))
    return rows


def test_minutes_to_a_published_loss_are_of_the_first_whole_test_that_met_it():
    curve = gpt.curves(evidence(loss_run([2.3, 1.87, 1.9, 1.8]), loss_run([1.5], tested=64)))
    own = only(gpt.to_target(curve))
    assert own[["target", "best_loss", "steps", "minutes"]].tolist() == pytest.approx([1.88, 1.8, 500, 2])
    missed = only(gpt.to_target(gpt.curves(evidence(loss_run([2.3, 1.89])))))
    assert (missed["best_loss"], missed[["steps", "minutes", "dollars"]].isna().all()) == (1.89, True)
    assert gpt.to_target(gpt.curves(evidence(loss_run([1.5], dataset="tinyshakespeare-excerpt")))).empty
    assert gpt.to_target(gpt.curves(evidence([]))).empty


def test_a_measured_accuracy_and_rate_of_four_devices_judge_claims():
    own = {"count": 4, "batch_size": 1024, "device": "tpu", "precision": "amp_bf16", "dataset_samples": 1_281_167}
    rows = accuracy_run([0.5, 0.757, 0.764], stated={"price_per_hour": 6.7}, **own)
    values = named(resnet50.STUDY.quantities(evidence(rows)))
    assert (values["best_accuracy"], values["epochs_to_best"], values["epochs_to_757"]) == (0.764, 3, 2)
    assert (values["on_demand_per_hour"], values["real_rate"]) == (6.7, 90)
    slow = accuracy_run([0.5], **own | {"precision": "fp32"})
    assert "real_rate" not in named(resnet50.STUDY.quantities(evidence(slow)))
    alone = accuracy_run([0.5], **own | {"count": 1})
    assert resnet50.STUDY.quantities(evidence(alone)) == []


def test_the_fastest_and_the_largest_batch_of_a_users_network():
    rates = {4: (8.0, 9.0), 32: (12.0, 12.5), 64: (10.0, 10.0)}
    runs = [point("your_network", rate, batch_size=size) for size, rate in rates.items()]
    failed = point("your_network", (), ended="out_of_memory", batch_size=256)
    said = your_network.batch_sizes_title(your_network.rates(evidence(*runs, failed)))
    assert said.count("32") == said.count("64") == 1
    for other in ({}, {"image_size": 96}, {"settings": {"optimizer": "adam"}}):  # other work is no other batch size
        alone = [runs[0], point("your_network", (20.0,), batch_size=16, **other)] if other else [runs[0]]
        assert not your_network.batch_sizes_title(your_network.rates(evidence(*alone)))


def test_other_chips_are_predicted_for_a_network_on_record_and_refused_for_another():
    here = {"device": "cuda", "device_name": "NVIDIA GeForce RTX 4090", "batch_size": 32, "image_size": 224}
    counts = {"vgg16": 92.8e9, "resnet50": 1e9, "mine": 24.5e9}
    runs = [
        point("your_network", (800.0,), model=name, flops_per_sample=count, **here) for name, count in counts.items()
    ]
    table = your_network.elsewhere(evidence(*runs))
    others = table[table["source"] == "predicted"].set_index("where")
    known = others[others["model"] == "vgg16"]
    assert (known["low"] < known["samples_per_second"]).all()
    assert pandas.isna(known.loc["Apple M1", "dollars"])  # it is not rented by the hour
    refused = others[others["model"] != "vgg16"]
    assert refused["samples_per_second"].isna().all()
    reasons = refused.groupby("model")["reason"].first()
    assert "another network" in reasons["resnet50"]
    assert "'mine' is not on record" in reasons["mine"]


def test_an_accuracy_is_read_off_the_raw_curve_and_never_continued():
    accuracies = [0.1, 0.5, 0.4, 0.6]
    rows = pandas.DataFrame({"phase": "evaluate", "epoch": range(1, 5), "accuracy": accuracies})
    rows = pandas.concat([rows, pandas.DataFrame({"phase": ["train"], "epoch": [1], "accuracy": [0.9]})])
    assert resnet50.epochs_to_accuracy(rows, 0.45) == 2
    assert resnet50.epochs_to_accuracy(rows, 0.6) == 4
    assert resnet50.epochs_to_accuracy(rows, 0.61) is None


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (
            ["did not converge", "converged", "not judged"],
            "1 of 2 frozen points did not converge, at learning rate 0.1 (",
        ),
        (["converged"], "0 of 1 frozen points did not converge (the rule: "),
        (["not judged"], "Frozen convergence: not judged ("),
    ],
)
def test_frozen_points_that_did_not_converge_are_counted_with_their_learning_rates(verdicts, said):
    judged = pandas.DataFrame({"verdict": verdicts, "learning_rate": [0.1, 0.01, 0.001][: len(verdicts)]})
    assert mobilenetv2.convergence_sentence(judged).startswith(said)
