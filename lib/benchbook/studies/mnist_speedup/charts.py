"""Tables and charts of the MNIST study: seconds for the article's epoch, speed-up, input, step time."""

import pandas
from matplotlib.axes import Axes

from benchbook import articles, figures, statistics, verdicts

TRAIN_IMAGES, TEST_IMAGES = 60_000, 10_000  # what one epoch and one test of MNIST are
BATCH_SIZE = 64  # the article's
PARTS = {"setup": "set-up and first call", "cpu": "training on the CPU", "accelerator": "on an accelerator"}
PARTS |= {"evaluate": "test", "published": "published (parts not told)"}
LOADERS = ("reference", "equal loader", "resident", "tuned")


def epoch_seconds(rows: pandas.DataFrame, conditions: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return seconds for what the article timed: data set-up, one training epoch, the test.

    Measured rows keep the parts apart, and here they are added: set-up, first call, 60,000 training images
    and 10,000 test images at the medians measured; the bounds are those of the training part. Points at the article's
    batch size count, and those that failed before they had one; of two that are alike (quick and paper, say) the one
    that measured more images.

    Args:
        rows: measured and published ones.
        conditions: from `condition.samples`, for the verdicts; None where there are none.

    Returns:
        Columns: machine, chip, device, variant, loader (reference, equal loader, resident, tuned), source, dataset,
        setup_seconds, train_seconds, evaluate_seconds, seconds, low, high, num_windows, verdict, status, point. Of a
        point that failed before its first window the seconds are missing.
    """
    study = rows[rows["study"] == "mnist_speedup"]
    # A run's first row, data set-up, is written before the workload that has a batch size.
    sizes = study.groupby(statistics.POINT_KEY)["batch_size"].transform("first")
    study = study[(sizes == BATCH_SIZE) | sizes.isna()]
    published = study[(study["phase"] == "total") & (study["source"] != "measured")]
    lines = [_published_epoch(row) for row in published.to_dict("records")]
    newest = statistics.newest(study[study["source"] == "measured"])
    for summary in _points(study, conditions).to_dict("records"):
        point = newest[(newest["point"] == summary["point"]) & (newest["machine"] == summary["machine"])]
        lines.append(_measured_epoch(summary, point))
    columns = ["machine", "chip", "device", "variant", "loader", "source", "dataset", "setup_seconds", "train_seconds"]
    columns += ["evaluate_seconds", "seconds", "low", "high", "num_windows", "verdict", "status", "point"]
    epochs = pandas.DataFrame(lines, columns=columns)
    rank = epochs["loader"].map(LOADERS.index)
    return epochs.assign(rank=rank).sort_values(["source", "machine", "device", "rank"])[columns].reset_index(drop=True)


def speedups(epochs: pandas.DataFrame) -> pandas.DataFrame:
    """Return, per machine and loader, how many times faster the accelerator's epoch is than the CPU's.

    Args:
        epochs: from `epoch_seconds`.

    Returns:
        Columns: machine, device (the accelerator's), variant, loader, source, dataset, speedup, low, high, num_windows
        (of the one with fewer), verdict (of the one that is worse off).
    """
    alike = ["machine", "variant", "loader", "dataset", "source"]
    known = epochs[epochs["status"].eq("ok") & epochs["seconds"].notna()]
    ends = ["seconds", "low", "high", "num_windows", "verdict"]
    pairs = known[known["device"] != "cpu"].merge(
        known.loc[known["device"] == "cpu", [*alike, *ends]], on=alike, suffixes=("", "_cpu")
    )
    pairs = pairs.assign(
        speedup=pairs["seconds_cpu"] / pairs["seconds"],
        low=pairs["low_cpu"] / pairs["high"],
        high=pairs["high_cpu"] / pairs["low"],
        num_windows=pairs[["num_windows", "num_windows_cpu"]].min(axis=1),
        verdict=[verdicts.worse(*both) for both in zip(pairs["verdict"], pairs["verdict_cpu"], strict=True)],
    )
    columns = ["machine", "device", "variant", "loader", "source", "dataset", "speedup", "low", "high"]
    return pairs[[*columns, "num_windows", "verdict"]]


def input_shares(rows: pandas.DataFrame, conditions: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return how much of a training step is input, for each loader at the article's batch size.

    Args:
        rows, conditions: see `epoch_seconds`.

    Returns:
        Columns: machine, device, dataset, variant, loader, waited (host wait over window), share (1 - resident step /
        loop step, with the resident step of the same machine, device and batch size; missing without one), the bounds
        of both (waited_low and so on), num_windows, verdict, status.
    """
    points = _points(rows, conditions)
    points = points[(points["batch_size"] == BATCH_SIZE) & points["seconds_per_step"].notna()]
    place = ["machine", "device", "dataset"]
    resident = points[points["loader"] == "resident"].set_index(place)[["samples_per_second", "low", "high"]]
    resident = resident.add_suffix("_resident")
    loops = points[points["loader"].isin(["reference", "equal loader"])]
    loops = loops.join(resident, on=place).sort_values([*place, "loader"], ascending=[True, True, True, False])
    bounds = {"share": ("samples_per_second",) * 2, "share_low": ("high", "low"), "share_high": ("low", "high")}
    shares = {name: 1 - loops[loop] / loops[f"{ready}_resident"] for name, (loop, ready) in bounds.items()}
    columns = [*place, "variant", "loader", "waited", "waited_low", "waited_high", *shares]
    shares["waited"] = loops["input_share_waited"]
    return loops.assign(**shares)[[*columns, "num_windows", "verdict", "status"]].reset_index(drop=True)


def step_times(rows: pandas.DataFrame, conditions: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return the resident step's time by batch size, split into a fixed part and a part per image.

    Args:
        rows, conditions: see `epoch_seconds`.

    Returns:
        Columns: machine, device, dataset, batch_size, seconds_per_step, low, high, num_windows, verdict, status,
        fixed_seconds, seconds_per_image, misfit (the line's distance from this step time, as a fraction of it);
        machines with fewer than two batch sizes are left out.
    """
    points = _points(rows, conditions)
    points = points[(points["loader"] == "resident") & points["seconds_per_step"].notna()]
    kept = ["machine", "device", "dataset", "batch_size", "seconds_per_step", "num_windows", "verdict", "status"]
    parts = []
    for _, group in points.groupby(["machine", "device", "dataset"], sort=True):
        if group["batch_size"].nunique() > 1:
            fixed, per_image = statistics.fit_step_time(group["batch_size"], group["seconds_per_step"])
            part = group[kept].assign(
                low=group["batch_size"] / group["high"],
                high=group["batch_size"] / group["low"],
                fixed_seconds=fixed,
                seconds_per_image=per_image,
                misfit=abs((fixed + per_image * group["batch_size"]) / group["seconds_per_step"] - 1),
            )
            parts.append(part.sort_values("batch_size"))
    columns = [*kept[:5], "low", "high", *kept[5:], "fixed_seconds", "seconds_per_image", "misfit"]
    return pandas.concat(parts, ignore_index=True)[columns] if parts else pandas.DataFrame(columns=columns)


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
    parts = {"setup_seconds": "setup", "train_seconds": "", "evaluate_seconds": "evaluate"}
    labels = [_label(line) for line in epochs.to_dict("records")]
    figures.draw_bars(axes, epochs, "seconds", labels, lambda line: f"{line['seconds']:.1f} s", parts, PARTS)
    axes.set_xlabel("seconds for data set-up, one training epoch and the test")
    axes.margins(x=0.2)
    axes.set_title(epochs_title(epochs))


def epochs_title(epochs: pandas.DataFrame) -> str:
    """Return what the epoch chart shows, in a sentence with its numbers."""
    measured = epochs[(epochs["source"] == "measured") & (epochs["loader"] == "reference") & epochs["status"].eq("ok")]
    published = epochs[epochs["source"] != "measured"]["seconds"]
    between = f"published {figures.span(published, '.0f')} s" if len(published) else "none published"
    if measured.empty:
        return f"One MNIST epoch: {between}; none measured with the article's loaders yet"
    best = measured.sort_values("seconds").iloc[0]
    of = "" if best["dataset"] == "mnist" else f", {best['dataset']} scaled up"
    return f"One epoch takes {best['seconds']:.0f} s on {best['chip']} ({best['device']}{of}); {between}"


def draw_speedups(axes: Axes, ratios: pandas.DataFrame) -> None:
    """Draw the accelerator's speed-up over the CPU of the same machine, measured beside published."""
    labels = [_label(line) for line in ratios.to_dict("records")]
    figures.draw_bars(axes, ratios, "speedup", labels, lambda line: f"{line['speedup']:.2f}x")
    axes.axvline(1, color=figures.COLOURS["line"], linewidth=1)
    axes.set_xlabel("CPU seconds / accelerator seconds, same machine")
    axes.margins(x=0.2)
    axes.set_title(speedups_title(ratios))


def speedups_title(ratios: pandas.DataFrame) -> str:
    """Return what the chart of speed-ups shows, in a sentence with its numbers."""
    measured = ratios[ratios["source"] == "measured"]
    published = ratios[ratios["source"] != "measured"]["speedup"]
    known = f"published {figures.span(published, '.2f')} times" if len(published) else "none published"
    if measured.empty:
        return f"Accelerator over CPU: {known}; not measured here"
    return f"Accelerator over CPU: measured {figures.span(measured['speedup'], '.2f')} times, {known}"


def draw_input_shares(axes: Axes, shares: pandas.DataFrame) -> None:
    """Draw, per loader, the share of a step the host waited and the share a resident batch would save."""
    labels = [_label(line) for line in shares.to_dict("records")]
    figures.draw_input_shares(axes, shares, labels, "the data were on the device")
    known = shares["share"].dropna()
    axes.set_title(
        f"Input takes {figures.span(known, '.0%')} of a training step"
        if len(known)
        else "Input share: not known without a resident point"
    )


def draw_step_times(axes: Axes, steps: pandas.DataFrame) -> None:
    """Draw the resident step's time over batch size with the fit into a fixed and a per-image part."""
    titles = []
    for (machine, device, _), group in steps.groupby(["machine", "device", "dataset"], sort=True):
        first, shade = group.iloc[0], figures.colour(device)
        label = f"{machine}, {device}{figures.num_windows(group)}"
        milliseconds = group.assign(**{name: group[name] * 1e3 for name in ("seconds_per_step", "low", "high")})
        style = {"fmt": "o", "color": shade, "label": label}
        figures.draw_points(axes, milliseconds, "batch_size", "seconds_per_step", style)
        ends = pandas.Series([0.0, group["batch_size"].max()])
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


def _points(rows: pandas.DataFrame, conditions: pandas.DataFrame | None) -> pandas.DataFrame:
    """Return the study's measured points, with loader and verdict; of two alike, the one that measured more images."""
    points = verdicts.summarise(rows[rows["study"] == "mnist_speedup"], conditions)
    points = points.assign(loader=[_loader(point) for point in points.to_dict("records")])
    alike = ["machine", "device", "dataset", "batch_size", "loader"]
    longest_last = points.sort_values("num_samples", kind="stable", na_position="first")  # a failure may have none
    return longest_last.drop_duplicates(alike, keep="last").sort_index()


def _loader(point: dict) -> str:
    if point["variant"] != "controlled":
        return point["variant"]
    return "resident" if point["settings"].get("data_resident") else "equal loader"


def _published_epoch(row: dict) -> dict:
    low, high = articles.bounds(row, "seconds")
    names = ("machine", "chip", "device", "variant", "source", "dataset", "seconds", "status")
    return {name: row[name] for name in names} | {"loader": "reference", "low": low, "high": high}


def _measured_epoch(summary: dict, rows: pandas.DataFrame) -> dict:
    setup = rows.loc[rows["phase"].isin(["setup", "compile"])].groupby("phase")["seconds"].median().sum(min_count=1)
    test_rate = rows.loc[rows["phase"] == "evaluate", "samples_per_second"].median()
    evaluate = TEST_IMAGES / test_rate if pandas.notna(test_rate) else float("nan")
    other = sum(seconds for seconds in (setup, evaluate) if pandas.notna(seconds))
    rates = {"low": summary["high"], "seconds": summary["samples_per_second"], "high": summary["low"]}
    train = {name: TRAIN_IMAGES / rate for name, rate in rates.items()}
    names = ("machine", "chip", "device", "variant", "loader", "dataset", "num_windows", "verdict", "status", "point")
    return {
        **{name: summary[name] for name in names},
        **{name: seconds + other for name, seconds in train.items()},
        "source": "measured",
        "setup_seconds": setup,
        "train_seconds": train["seconds"],
        "evaluate_seconds": evaluate,
    }


def _label(line: dict) -> str:
    stand_in = "" if line["dataset"] == "mnist" or pandas.isna(line["dataset"]) else f", {line['dataset']}"
    published = "" if line.get("source", "measured") == "measured" else f", {line['source']}"
    return f"{line['machine']}\n{line['device']}, {line['loader']}{stand_in}{published}"
