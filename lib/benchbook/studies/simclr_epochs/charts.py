"""Tables and charts of the SimCLR study: minutes an epoch, the input's share, accuracy, pairs of views."""

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook import articles, figures, statistics, support, verdicts

NAME = "simclr_epochs"
BATCH_SIZE = 128  # the article's
TRAIN_IMAGES = 50_000 // BATCH_SIZE * BATCH_SIZE  # of an epoch of CIFAR-10: a last batch with fewer is dropped
EVALUATED_IMAGES = 50_000 + 10_000  # those that vote and those that are judged
PARTS = {"cpu": "training on the CPU", "accelerator": "on an accelerator", "evaluate": "evaluation"}
PARTS |= {"published": "published (parts not told)"}
VARIANTS = ("reference", "controlled", "tuned", "tuned, joint views")


def epoch_minutes(rows: pandas.DataFrame, conditions: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return minutes for the article's epoch: training on CIFAR-10 once, and the nearest-neighbour evaluation.

    Measured rows keep the two apart, and here they are added, each scaled from its median rate to the article's images;
    the bounds are those of the training. Points at the article's batch size count, and those that failed before they
    had one; of two that are alike the one that measured more images. The start of a loader's workers is in windows that
    are whole epochs alone.

    Args:
        rows: measured and published ones.
        conditions: from `condition.samples`, for the verdicts; None where there are none.

    Returns:
        Columns: machine, chip, device, variant (see VARIANTS), precision, compiled, source, dataset, train_minutes,
        evaluate_minutes, minutes, low, high, num_windows, verdict, status, point. Of a point that failed before its
        first window the minutes are missing.
    """
    study = rows[rows["study"] == NAME]
    printed = study[(study["phase"] == "total") & (study["source"] == "published")]
    lines = [_published(row) for row in printed.to_dict("records")]
    lines += [_measured(point, study) for point in _points(study, conditions).to_dict("records")]
    columns = ["machine", "chip", "device", "variant", "precision", "compiled", "source", "dataset"]
    columns += ["train_minutes", "evaluate_minutes", "minutes", "low", "high", "num_windows", "verdict"]
    columns += ["status", "point"]
    epochs = pandas.DataFrame([line for line in lines if line], columns=columns)
    rank = epochs["variant"].map(VARIANTS.index)
    return epochs.assign(rank=rank).sort_values(["source", "machine", "device", "rank"])[columns].reset_index(drop=True)


def input_shares(rows: pandas.DataFrame, conditions: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return how much of a training step is input: making the views, waiting for them, moving them.

    Args:
        rows, conditions: see `epoch_minutes`.

    Returns:
        Columns: machine, device, dataset, variant, waited (host wait over window), share (1 - resident step / loop
        step, both of the same run; missing where no resident step was timed), the bounds of both (waited_low and so
        on; of the resident steps, which are few, their range), num_windows, verdict, status.
    """
    study = rows[rows["study"] == NAME]
    tried = support.rows_tried(study, support.RESIDENT)
    ready = tried.groupby(statistics.POINT_KEY)["samples_per_second"].agg(["median", "min", "max"])
    points = _points(study, conditions)
    points = points[points["seconds_per_step"].notna()].join(ready.astype(float), on=statistics.POINT_KEY)
    shares = {
        "share": 1 - points["samples_per_second"] / points["median"],
        "share_low": 1 - points["high"] / points["min"],
        "share_high": 1 - points["low"] / points["max"],
    }
    columns = ["machine", "device", "dataset", "variant", "waited", "waited_low", "waited_high", *shares]
    shares["waited"] = points["input_share_waited"]
    return points.assign(**shares)[[*columns, "num_windows", "verdict", "status"]].reset_index(drop=True)


def accuracies(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the nearest-neighbour accuracy by epochs trained, a part of an epoch being a fraction.

    Returns:
        Columns: machine, chip, device, variant, source, dataset, epochs, accuracy (median over seeds and runs), low,
        high (least and most), num_seeds, num_runs.
    """
    study = rows[rows["study"] == NAME]
    printed = study[(study["source"] == "published") & study["accuracy"].notna() & (study["batch_size"] == BATCH_SIZE)]
    measured = statistics.newest(study[study["source"] == "measured"])
    lines = [_evaluation(row, row["settings"]["epochs"]) for row in printed.to_dict("records")]
    for _, run in measured.groupby(["machine", "point", "run_id", "repeat"], sort=True):
        seen = 0
        for row in run.to_dict("records"):
            seen += row["samples"] if row["phase"] == "train" and pandas.notna(row["samples"]) else 0
            if row["phase"] == "evaluate" and pandas.notna(row["accuracy"]):
                lines.append(_evaluation(row, seen / (row["dataset_samples"] // row["batch_size"] * row["batch_size"])))
    key = ["machine", "chip", "device", "variant", "source", "dataset", "epochs"]
    found = pandas.DataFrame(lines, columns=[*key, "accuracy", "seed", "run_id"])
    groups = found.groupby(key, dropna=False, sort=True)
    low_high = {"low": ("accuracy", "min"), "high": ("accuracy", "max")}
    counts = {"num_seeds": ("seed", "nunique"), "num_runs": ("run_id", "nunique")}
    return groups.agg(accuracy=("accuracy", "median"), **low_high, **counts).reset_index()


def quantities(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return what claims of this study are made of, as measured.

    Returns:
        Columns: machine, chip, source, name (cpu_epoch_seconds, accelerator_epoch_seconds), value, low, high; seconds
        of the article's epoch, on CIFAR-10 itself with the article's loaders, of points without a failure.
    """
    epochs = epoch_minutes(rows[rows["source"] == "measured"])
    epochs = epochs[(epochs["variant"] == "reference") & (epochs["dataset"] == "cifar10") & (epochs["status"] == "ok")]
    epochs = epochs[epochs["evaluate_minutes"].notna()]
    names = ["cpu_epoch_seconds" if device == "cpu" else "accelerator_epoch_seconds" for device in epochs["device"]]
    seconds = epochs[["minutes", "low", "high"]].astype(float) * 60
    known = epochs[["machine", "chip", "source"]].assign(name=names)
    return known.assign(value=seconds["minutes"], low=seconds["low"], high=seconds["high"]).reset_index(drop=True)


def draw_epochs(axes: Axes, epochs: pandas.DataFrame) -> None:
    """Draw one bar per machine, device and variant, training and evaluation; published ones in grey."""
    parts = {"train_minutes": "", "evaluate_minutes": "evaluate"}
    labels = [_label(line) for line in epochs.to_dict("records")]
    figures.draw_bars(axes, epochs, "minutes", labels, lambda line: f"{line['minutes']:.3g} min", parts, PARTS)
    axes.set_xlabel("minutes for one epoch of CIFAR-10 and its nearest-neighbour evaluation")
    axes.margins(x=0.25)
    axes.set_title(epochs_title(epochs))


def epochs_title(epochs: pandas.DataFrame) -> str:
    """Return what the epoch chart shows, in a sentence with its numbers."""
    published = epochs[epochs["source"] != "measured"]["minutes"]
    known = f"published {published.min():.2f} to {published.max():.1f} min" if len(published) else "none published"
    measured = epochs[(epochs["source"] == "measured") & epochs["status"].eq("ok")]
    if measured.empty:
        return f"An epoch of SimCLR: {known}; not measured here yet"
    best = measured.sort_values("minutes").iloc[0]
    of = "" if best["dataset"] == "cifar10" else f", {best['dataset']} scaled up"
    return f"An epoch takes {best['minutes']:.3g} min ({best['variant']}, {best['device']}{of}); {known}"


def draw_input_shares(axes: Axes, shares: pandas.DataFrame) -> None:
    """Draw, per variant, the share of a step the host waited and the share that ready batches would save."""
    labels = [_label(line) for line in shares.to_dict("records")]
    figures.draw_input_shares(axes, shares, labels, "the views lay on the device", digits=1)
    known = shares["share"].dropna()
    axes.set_title(
        f"Input takes {figures.span(known, '.1%')} of a training step"
        if len(known)
        else "Input share: no step on ready batches was timed yet"
    )


def draw_accuracies(axes: Axes, found: pandas.DataFrame) -> None:
    """Draw accuracy over epochs; the range over seeds and runs as whiskers, published ends in grey."""
    key = ["source", "machine", "device", "variant", "dataset"]
    for (source, _, device, variant, _), curve in found.groupby(key, sort=True):
        line = curve.iloc[0].to_dict()
        shade = figures.colour(device) if source == "measured" else figures.COLOURS["published"]
        dash = ("-", "--", ":", "-.")[VARIANTS.index(variant)]
        errors = [curve["accuracy"] - curve["low"], curve["high"] - curve["accuracy"]]
        most = curve["num_runs"].max()
        label = _label(line).replace("\n", ", ") + (f", range of {most} runs" if most > 1 else "")
        axes.errorbar(curve["epochs"], curve["accuracy"], errors, fmt=f"o{dash}", color=shade, capsize=3, label=label)
    axes.set(xscale="log", xlabel="epochs trained", ylabel="nearest-neighbour accuracy")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_ylim(0, 1)
    axes.grid(visible=True)
    axes.legend(fontsize=8) if len(found) else None
    axes.set_title(accuracies_title(found))


def accuracies_title(found: pandas.DataFrame) -> str:
    """Return what the accuracy chart shows, in a sentence with its numbers."""
    ends = [
        f"{line['source']} {line['accuracy']:.1%} after {line['epochs']:.3g} epochs"
        for line in found.sort_values("epochs").groupby("source").tail(1).to_dict("records")
    ]
    return "Accuracy: " + ("; ".join(ends) or "nothing yet")


def draw_pairs(axes: Axes, first: numpy.ndarray, second: numpy.ndarray) -> None:
    """Draw two views of each image, one above the other.

    Args:
        axes: where to draw.
        first, second: pixels 0 to 1, shape (n, height, width, 3).
    """
    axes.imshow(numpy.vstack([numpy.hstack(first), numpy.hstack(second)]))
    axes.set(xticks=[])
    height = first.shape[1]
    axes.set_yticks([height * 0.5, height * 1.5], ["first view", "second view"])
    axes.spines[:].set_visible(False)
    off = numpy.abs(first - second).mean()
    axes.set_title(f"Two views of {len(first)} images; their pixels are {off:.2f} apart on average")


def reading(rows: pandas.DataFrame) -> str:
    """Return what one run's rows say about its training, in sentences with their numbers."""
    this = statistics.summarise(rows).iloc[0]
    found = accuracies(rows)
    ends = found.iloc[-1] if len(found) else None
    known = (
        f"; {ends['accuracy']:.1%} nearest-neighbour accuracy after {ends['epochs']:.3g} epochs" if len(found) else ""
    )
    if pandas.isna(this["samples_per_second"]):
        return f"This run ({this['variant']}, {this['device']}, {this['dataset']}) measured no window."
    shares = input_shares(rows)["share"].dropna()
    share = f", of which ready batches would save {shares.iloc[0]:.1%}" if len(shares) else ""
    return (
        f"This run ({this['variant']}, {this['device']}, {this['precision']}, {this['dataset']}) trained on a median "
        f"of {this['samples_per_second']:,.1f} images a second over {this['num_windows']} windows, "
        f"{this['seconds_per_step']:.3g} s a step{share}{known}."
    )


def _points(study: pandas.DataFrame, conditions: pandas.DataFrame | None) -> pandas.DataFrame:
    """Return the measured points at the article's batch size, with verdicts; of two alike, the longer one."""
    points = verdicts.summarise(study, conditions)
    points = points[(points["batch_size"] == BATCH_SIZE) | points["batch_size"].isna()]
    points = points.assign(variant=[_variant(point) for point in points.to_dict("records")])
    alike = ["machine", "device", "dataset", "variant"]
    longest_last = points.sort_values("num_samples", kind="stable", na_position="first")  # a failure may have none
    return longest_last.drop_duplicates(alike, keep="last").sort_index()


def _variant(row: dict) -> str:
    return "tuned, joint views" if row["settings"].get("joint_views") else row["variant"]


def _published(row: dict) -> dict | None:
    """Return the line of a printed time of one epoch; totals of many epochs have none."""
    if row["settings"].get("epochs", 1) != 1:
        return None
    low, high = articles.bounds(row, "seconds")
    names = ("machine", "chip", "device", "variant", "precision", "compiled", "source", "dataset", "status")
    minutes = {"minutes": row["seconds"] / 60, "low": low / 60, "high": high / 60}
    return {name: row[name] for name in names} | minutes


def _measured(point: dict, study: pandas.DataFrame) -> dict:
    newest = statistics.newest(study[(study["source"] == "measured") & (study["point"] == point["point"])])
    newest = newest[(newest["machine"] == point["machine"]) & (newest["phase"] == "evaluate")]
    rate = newest["samples_per_second"].astype(float).median()
    evaluate, train = EVALUATED_IMAGES / rate / 60, TRAIN_IMAGES / point["samples_per_second"] / 60
    added = 0.0 if pandas.isna(evaluate) else evaluate
    names = ("machine", "chip", "device", "variant", "precision", "compiled", "dataset", "num_windows")
    names += ("verdict", "status", "point")
    return {name: point[name] for name in names} | {
        "source": "measured",
        "train_minutes": train,
        "evaluate_minutes": evaluate,
        "minutes": train + added,
        "low": TRAIN_IMAGES / point["high"] / 60 + added,
        "high": TRAIN_IMAGES / point["low"] / 60 + added,
    }


def _evaluation(row: dict, epochs: float) -> dict:
    names = ("machine", "chip", "device", "source", "dataset", "accuracy", "run_id")
    seed = row["settings"].get("seed")
    return {name: row[name] for name in names} | {"variant": _variant(row), "epochs": float(epochs), "seed": seed}


def _label(line: dict) -> str:
    stand_in = "" if line["dataset"] == "cifar10" or pandas.isna(line["dataset"]) else f", {line['dataset']}"
    known = line.get("precision")
    precision = "" if pandas.isna(known) or known == "fp32" else f", {known}"
    published = "" if line.get("source", "measured") == "measured" else f", {line['source']}"
    return f"{line['machine']}\n{line['device']}, {line['variant']}{precision}{stand_in}{published}"
