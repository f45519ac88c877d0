"""Tables and charts of the MNIST study: seconds for the article's epoch, speed-up, input, step time."""

import pandas
from matplotlib.axes import Axes

from benchbook import articles, figures, records, statistics

TRAIN_IMAGES, TEST_IMAGES = 60_000, 10_000  # what one epoch and one test of MNIST are
BATCH_SIZE = 64  # the article's
LOADERS = ("reference", "equal loader", "resident", "tuned")


def epoch_seconds(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return seconds for what the article timed: data set-up, one training epoch, the test.

    Measured rows keep the parts apart, and here they are added: set-up, first call, 60,000 training images
    and 10,000 test images at the medians measured; the bounds are those of the training part. Points at the article's
    batch size count; of two that are alike (quick and paper, say) the one that measured more images.

    Returns:
        Columns: machine, chip, device, loader (reference, equal loader, resident, tuned), source, dataset,
        setup_seconds, train_seconds, evaluate_seconds, seconds, low, high, num_windows, status.
    """
    study = rows[rows["study"] == "mnist_speedup"]
    # A run's first row, data set-up, is written before the workload that has a batch size.
    study = study[study.groupby(statistics.POINT_KEY)["batch_size"].transform("first") == BATCH_SIZE]
    published = study[(study["phase"] == "total") & (study["source"] != "measured")]
    lines = [_published_epoch(row) for row in published.to_dict("records")]
    newest = statistics.newest(study[study["source"] == "measured"])
    for summary in _points(study).to_dict("records"):
        point = newest[(newest["point"] == summary["point"]) & (newest["machine"] == summary["machine"])]
        lines.append(_measured_epoch(summary, point))
    columns = ["machine", "chip", "device", "loader", "source", "dataset", "setup_seconds", "train_seconds"]
    columns += ["evaluate_seconds", "seconds", "low", "high", "num_windows", "status"]
    epochs = pandas.DataFrame(lines, columns=columns)
    rank = epochs["loader"].map(LOADERS.index)
    return epochs.assign(rank=rank).sort_values(["source", "machine", "device", "rank"])[columns].reset_index(drop=True)


def speedups(epochs: pandas.DataFrame) -> pandas.DataFrame:
    """Return, per machine and loader, how many times faster the accelerator's epoch is than the CPU's.

    Args:
        epochs: from `epoch_seconds`.

    Returns:
        Columns: machine, device (the accelerator's), loader, source, dataset, speedup, low, high.
    """
    alike = ["machine", "loader", "dataset", "source"]
    pairs = epochs[epochs["device"] != "cpu"].merge(
        epochs.loc[epochs["device"] == "cpu", [*alike, "seconds", "low", "high"]], on=alike, suffixes=("", "_cpu")
    )
    pairs = pairs.assign(
        speedup=pairs["seconds_cpu"] / pairs["seconds"],
        low=pairs["low_cpu"] / pairs["high"],
        high=pairs["high_cpu"] / pairs["low"],
    )
    columns = ["machine", "device", "loader", "source", "dataset", "speedup", "low", "high"]
    return pairs[columns]


def input_shares(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return how much of a training step is input, for each loader at the article's batch size.

    Returns:
        Columns: machine, device, dataset, loader, waited (host wait over window), share (1 - resident step /
        loop step, with the resident step of the same machine, device and batch size; missing without one).
    """
    points = _points(rows)
    points = points[points["batch_size"] == BATCH_SIZE]
    resident = points[points["loader"] == "resident"].set_index(["machine", "device", "dataset"])
    step = resident["seconds_per_step"].to_dict()
    lines = [
        {
            **{name: point[name] for name in ("machine", "device", "dataset", "loader")},
            "waited": point["input_share_waited"],
            "share": 1
            - step.get((point["machine"], point["device"], point["dataset"]), float("nan")) / point["seconds_per_step"],
        }
        for point in points[points["loader"].isin(["reference", "equal loader"])].to_dict("records")
    ]
    return pandas.DataFrame(lines, columns=["machine", "device", "dataset", "loader", "waited", "share"])


def step_times(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the resident step's time by batch size, split into a fixed part and a part per image.

    Returns:
        Columns: machine, device, dataset, batch_size, seconds_per_step, low, high, fixed_seconds, seconds_per_image,
        misfit (the line's distance from this step time, as a fraction of it); machines with fewer than two
        batch sizes are left out.
    """
    points = _points(rows)
    points = points[points["loader"] == "resident"]
    parts = []
    for _, group in points.groupby(["machine", "device", "dataset"], sort=True):
        if group["batch_size"].nunique() > 1:
            fixed, per_image = statistics.fit_step_time(group["batch_size"], group["seconds_per_step"])
            part = group[["machine", "device", "dataset", "batch_size", "seconds_per_step"]].assign(
                low=group["batch_size"] / group["high"],
                high=group["batch_size"] / group["low"],
                fixed_seconds=fixed,
                seconds_per_image=per_image,
                misfit=abs((fixed + per_image * group["batch_size"]) / group["seconds_per_step"] - 1),
            )
            parts.append(part.sort_values("batch_size"))
    columns = ["machine", "device", "dataset", "batch_size", "seconds_per_step", "low", "high"]
    empty = pandas.DataFrame(columns=[*columns, "fixed_seconds", "seconds_per_image", "misfit"])
    return pandas.concat(parts, ignore_index=True) if parts else empty


def quantities(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return what claims of this study are made of.

    Returns:
        Columns: machine, chip, source, name (cpu_seconds, accelerator_seconds), value, low, high; of MNIST
        itself with the article's loaders, of points without a failure.
    """
    epochs = epoch_seconds(rows)
    epochs = epochs[(epochs["loader"] == "reference") & (epochs["dataset"] == "mnist") & (epochs["status"] == "ok")]
    names = epochs["device"].map(lambda device: "cpu_seconds" if device == "cpu" else "accelerator_seconds")
    columns = ["machine", "chip", "source", "low", "high"]
    return epochs[columns].assign(name=names, value=epochs["seconds"]).reset_index(drop=True)


def draw_epochs(axes: Axes, epochs: pandas.DataFrame) -> None:
    """Draw one bar per machine, device and loader: set-up, training and test, published ones in grey."""
    order = epochs.iloc[::-1].reset_index(drop=True)
    published = order["source"] != "measured"
    axes.barh(order.index[published], order["seconds"][published], color=figures.COLOURS["published"])
    left = pandas.Series(0.0, index=order.index)
    parts = {"setup_seconds": "setup", "train_seconds": None, "evaluate_seconds": "evaluate"}
    for column, name in parts.items():
        colours = [figures.COLOURS[name] if name else figures.colour(device) for device in order["device"]]
        axes.barh(order.index, order[column].astype(float).fillna(0), left=left, color=colours)
        left += order[column].astype(float).fillna(0)
    figures.draw_whiskers(axes, order, "seconds")
    for position, line in order.iterrows():
        axes.text(line["high"], position, f"  {line['seconds']:.1f} s", va="center")
    axes.set_yticks(order.index, [_label(line) for line in order.to_dict("records")])
    axes.set_xlabel("seconds for data set-up, one training epoch and the test")
    axes.margins(x=0.12)
    axes.figure.legend(handles=_legend(), loc="outside lower center", ncols=5, fontsize=8)
    axes.set_title(epochs_title(epochs))


def epochs_title(epochs: pandas.DataFrame) -> str:
    """Return what the epoch chart shows, in a sentence with its numbers."""
    measured = epochs[(epochs["source"] == "measured") & (epochs["loader"] == "reference")]
    published = epochs[epochs["source"] != "measured"]["seconds"]
    between = f"published {published.min():.0f} to {published.max():.0f} s" if len(published) else "none published"
    if measured.empty:
        return f"One MNIST epoch: {between}; none measured with the article's loaders yet"
    best = measured.sort_values("seconds").iloc[0]
    of = "" if best["dataset"] == "mnist" else f", {best['dataset']} scaled up"
    return f"One epoch takes {best['seconds']:.0f} s on {best['chip']} ({best['device']}{of}); {between}"


def draw_speedups(axes: Axes, ratios: pandas.DataFrame) -> None:
    """Draw the accelerator's speed-up over the CPU of the same machine, measured beside published."""
    order = ratios.iloc[::-1].reset_index(drop=True)
    colours = [figures.COLOURS["accelerator" if source == "measured" else "published"] for source in order["source"]]
    axes.barh(order.index, order["speedup"], color=colours)
    figures.draw_whiskers(axes, order, "speedup")
    for position, line in order.iterrows():
        axes.text(line["high"], position, f"  {line['speedup']:.2f}x", va="center")
    axes.axvline(1, color=figures.COLOURS["line"], linewidth=1)
    axes.set_yticks(order.index, [_label(line) for line in order.to_dict("records")])
    axes.set_xlabel("CPU seconds / accelerator seconds, same machine")
    axes.margins(x=0.12)
    measured = ratios[ratios["source"] == "measured"]
    published = ratios[ratios["source"] != "measured"]["speedup"]
    known = f"published {published.min():.2f}x to {published.max():.2f}x" if len(published) else "none published"
    if measured.empty:
        axes.set_title(f"Accelerator over CPU: {known}; not measured here")
    else:
        low, high = measured["speedup"].min(), measured["speedup"].max()
        axes.set_title(f"Accelerator over CPU: measured {low:.2f}x to {high:.2f}x, {known}")


def draw_input_shares(axes: Axes, shares: pandas.DataFrame) -> None:
    """Draw, per loader, the share of a step the host waited and the share a resident batch would save."""
    labels = [_label(line) for line in shares.to_dict("records")]
    figures.draw_input_shares(axes, shares, labels, "the data were on the device")
    known = shares["share"].dropna()
    axes.set_title(
        f"Input takes {known.min():.0%} to {known.max():.0%} of a training step"
        if len(known)
        else "Input share: not known without a resident point"
    )


def draw_step_times(axes: Axes, steps: pandas.DataFrame) -> None:
    """Draw the resident step's time over batch size with the fit into a fixed and a per-image part."""
    titles = []
    for (machine, device, _), group in steps.groupby(["machine", "device", "dataset"], sort=True):
        first, shade = group.iloc[0], figures.colour(device)
        sizes, times = group["batch_size"].astype(float), group["seconds_per_step"] * 1e3
        errors = [times - group["low"] * 1e3, group["high"] * 1e3 - times]
        axes.errorbar(sizes, times, errors, fmt="o", color=shade, capsize=3, label=f"{machine}, {device}")
        ends = pandas.Series([0, sizes.max()])
        fitted = (first["fixed_seconds"] + first["seconds_per_image"] * ends) * 1e3
        axes.plot(ends, fitted, color=shade, linewidth=1)
        fixed, each = first["fixed_seconds"] * 1e3, first["seconds_per_image"] * 1e6
        titles.append(
            f"{fixed:.1f} ms + {each:.0f} µs an image ({device}; the line is off by up to {group['misfit'].max():.0%})"
        )
    axes.set(xlabel="batch size", ylabel="ms a step, data resident", xlim=(0, None), ylim=(0, None))
    axes.grid(visible=True)
    if titles:
        axes.legend(fontsize=8)
    axes.set_title("A step costs " + "; ".join(titles[:2]) if titles else "No machine has two batch sizes yet")


def _points(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the study's measured points that have windows, with their loader; of two alike, the longer one."""
    points = statistics.summarise(rows[rows["study"] == "mnist_speedup"])
    points = points[points["seconds_per_step"].notna()]
    points = points.assign(loader=[_loader(point) for point in points.to_dict("records")])
    alike = ["machine", "device", "dataset", "batch_size", "loader"]
    return points.sort_values("num_samples", kind="stable").drop_duplicates(alike, keep="last").sort_index()


def _loader(point: dict) -> str:
    if point["variant"] != "controlled":
        return point["variant"]
    return "resident" if records.settings(point["settings"]).get("data_resident") else "equal loader"


def _published_epoch(row: dict) -> dict:
    low, high = articles.bounds(row, "seconds")
    kept = {name: row[name] for name in ("machine", "chip", "device", "source", "dataset", "seconds", "status")}
    return kept | {"loader": "reference", "low": low, "high": high}


def _measured_epoch(summary: dict, rows: pandas.DataFrame) -> dict:
    setup = rows.loc[rows["phase"].isin(["setup", "compile"])].groupby("phase")["seconds"].median().sum()
    test_rate = rows.loc[rows["phase"] == "evaluate", "samples_per_second"].median()
    evaluate = TEST_IMAGES / test_rate if pandas.notna(test_rate) else float("nan")
    other = setup + (0 if pandas.isna(evaluate) else evaluate)
    train = TRAIN_IMAGES / summary["samples_per_second"]
    return {
        **{name: summary[name] for name in ("machine", "chip", "device", "dataset", "num_windows", "status")},
        "loader": _loader(summary),
        "source": "measured",
        "setup_seconds": float(setup),
        "train_seconds": train,
        "evaluate_seconds": evaluate,
        "seconds": train + other,
        "low": TRAIN_IMAGES / summary["high"] + other,
        "high": TRAIN_IMAGES / summary["low"] + other,
    }


def _label(line: dict) -> str:
    stand_in = "" if line["dataset"] == "mnist" else f", {line['dataset']}"
    published = "" if line.get("source", "measured") == "measured" else f", {line['source']}"
    return f"{line['machine']}\n{line['device']}, {line['loader']}{stand_in}{published}"


def _legend() -> list:
    names = {
        "setup": "set-up and first call",
        "cpu": "training on the CPU",
        "accelerator": "on an accelerator",
        "evaluate": "test",
        "published": "published (parts not told)",
    }
    return figures.patches(names)
