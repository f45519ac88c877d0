"""Tables of the MNIST study: seconds for the article's epoch, speed-up, the input's share, a step's time."""

import pandas

from benchbook.judging import confirmation, intervals, statistics, verdicts
from benchbook.judging.intervals import Interval
from benchbook.studies import input_shares
from benchbook.studies.epochs import ArticleEpoch
from benchbook.studies.study import Evidence, longest, once

NAME = "mnist_speedup"
BATCH_SIZE = 64  # the article's
PLACE = ["machine", "device", "framework", "dataset"]
_TIMED = ["seconds", "low", "high", "interval", "num_windows", "verdict"]
EPOCH = ArticleEpoch(
    study=NAME,
    dataset="mnist",
    train_images=60_000,
    evaluated_images=10_000,
    unit="seconds",
    ways=("loader", ("reference", "equal loader", "resident", *confirmation.TUNED_NAMES)),
    described=("framework",),
    setup_phases=("setup", "compile"),
)


@once
def epochs(evidence: Evidence) -> pandas.DataFrame:
    """Return seconds for what the article timed: data set-up, one training epoch, the test.

    Returns:
        What `ArticleEpoch.table` returns, with loader (reference, equal loader, resident, or what
        `confirmation.name` says), of points at the article's batch size and of those that failed before they had one.
    """
    printed = evidence.published[(evidence.published["study"] == NAME) & (evidence.published["phase"] == "total")]
    points = _points(evidence)
    points = points[(points["batch_size"] == BATCH_SIZE) | points["batch_size"].isna()]
    return EPOCH.table(evidence, points, printed.assign(loader="reference"))


def quantities(evidence: Evidence) -> list[dict]:
    """Return the seconds of epochs that repeat the article's, in its own framework, for claims."""
    times = epochs(evidence)
    return EPOCH.quantities(times[times["framework"] == "torch"], "seconds")


def speedups(times: pandas.DataFrame) -> pandas.DataFrame:
    """Return, per machine, framework and loader, how many times faster the accelerator's epoch is than the CPU's.

    Args:
        times: from `epochs`.

    Returns:
        Columns: machine, device (the accelerator's), framework, variant, loader, source, dataset, speedup, low, high,
        interval (its kind), num_windows (of the one with fewer), verdict (of the one that is worse off).
    """
    alike = ["machine", "framework", "variant", "loader", "dataset", "source"]
    times = times[times["status"].eq("ok") & times["seconds"].notna()]
    on_cpu = times.loc[times["device"] == "cpu", [*alike, *_TIMED]]
    pairs = times[times["device"] != "cpu"].merge(on_cpu, on=alike, suffixes=("", "_cpu"))
    columns = ["machine", "device", "framework", "variant", "loader", "source", "dataset", "speedup", "low", "high"]
    columns += ["interval", "num_windows", "verdict"]
    return pandas.DataFrame([_speedup(pair) for pair in pairs.to_dict("records")], columns=columns)


def _speedup(pair: dict) -> dict:
    """Return how many times faster an accelerator's epoch is than the CPU's, whose columns end in `_cpu`."""
    on_cpu = Interval.of(pair, *(f"{name}_cpu" for name in _TIMED[:4]))
    ratio = intervals.divide(on_cpu, Interval.of(pair, "seconds"))
    return pair | {
        "speedup": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "interval": ratio.kind,
        "num_windows": min(pair["num_windows"], pair["num_windows_cpu"]),
        "verdict": verdicts.worse(pair["verdict"], pair["verdict_cpu"]),
    }


def shares(evidence: Evidence) -> pandas.DataFrame:
    """Return how much of a training step is input, for each loader at the article's batch size.

    Returns:
        What `input_shares.table` returns, with framework and loader; a point is held against the resident one of the
        same machine, device, framework and data set.
    """
    points = _points(evidence)
    points = points[points["batch_size"] == BATCH_SIZE]
    resident = points[points["loader"] == "resident"].set_index(PLACE)
    resident = resident[["samples_per_second", "low", "high", "interval"]]
    loops = points[points["loader"].isin(["reference", "equal loader"])]
    loops = loops.sort_values([*PLACE, "loader"], ascending=[True, True, True, True, False])
    return input_shares.table(loops, resident, PLACE, ("framework", "loader"))


def step_times(evidence: Evidence) -> pandas.DataFrame:
    """Return the resident step's time by batch size, split into a fixed part and a part per image.

    Returns:
        Columns: machine, device, framework, dataset, batch_size, seconds_per_step, low, high, interval, num_windows,
        verdict, status, fixed_seconds, seconds_per_image, misfit (the line's distance from this step time, as a
        fraction of it); machines with fewer than two batch sizes are left out.
    """
    points = _points(evidence)
    points = points[(points["loader"] == "resident") & points["seconds_per_step"].notna()]
    points = points[[*PLACE, "batch_size", "seconds_per_step", "low", "high", *_TIMED[3:], "status"]]
    groups = [group for _, group in points.groupby(PLACE, sort=True)]
    splits = [_split(group) for group in groups if group["batch_size"].nunique() > 1]
    columns = [*PLACE, "batch_size", "seconds_per_step", "low", "high", "interval"]
    columns += ["num_windows", "verdict", "status", "fixed_seconds", "seconds_per_image", "misfit"]
    return pandas.concat(splits, ignore_index=True)[columns] if splits else pandas.DataFrame(columns=columns)


def _split(points: pandas.DataFrame) -> pandas.DataFrame:
    """Return resident points of one device, by batch size, with the two parts of a step's time."""
    fixed, per_image = statistics.fit_step_time(points["batch_size"], points["seconds_per_step"])
    fitted = fixed + per_image * points["batch_size"]
    return points.assign(
        batch_size=points["batch_size"].astype(int),
        low=points["batch_size"] / points["high"],
        high=points["batch_size"] / points["low"],
        fixed_seconds=fixed,
        seconds_per_image=per_image,
        misfit=abs(fitted / points["seconds_per_step"] - 1),
    ).sort_values("batch_size")


def _points(evidence: Evidence) -> pandas.DataFrame:
    """Return the study's measured points with their loader; of two alike, the one that measured more images."""
    points = evidence.points(NAME)
    points = points.assign(loader=[_loader(point) for point in points.to_dict("records")])
    return longest(points, [*PLACE, "batch_size", "loader"])


def _loader(point: dict) -> str:
    if point["variant"] != "controlled":
        return point["variant"]
    return "resident" if point["settings"].get("data_resident") else "equal loader"
