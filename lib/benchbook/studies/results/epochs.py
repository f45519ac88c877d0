"""The epoch that an article timed: how long it takes here, and how much of a step is input.

Measured rows keep training, evaluation and set-up apart. Here they are scaled to the article's
images and added.
"""

from dataclasses import dataclass

import pandas

from benchbook.judging import intervals, verdicts
from benchbook.judging.intervals import Interval
from benchbook.rows import records
from benchbook.studies.results import quantities, tables
from benchbook.studies.results.answers import Template
from benchbook.studies.results.evidence import SECONDS, Evidence

PARTS = {"train": "training", "setup": "set-up and first call", "evaluate": "evaluation"}
# of a share, for charts
BOUNDS = {"share_low": "low", "share_high": "high", "share_interval": "interval"}
# of steps on ready batches, with an optional verdict
RATE = ["samples_per_second", "low", "high", "interval"]
READ = ["machine", "point", "run_id", "phase", "seconds", "samples_per_second"]  # of each row


@dataclass(frozen=True)
class ArticleEpoch:
    """An epoch as an article defines it.

    Attributes:
        study: its name.
        dataset: the article's; other data may stand in for it.
        train_images: trained on in an epoch.
        evaluated_images: of one evaluation.
        unit: of the table's times, a key of SECONDS.
        ways: the column for how a point was run, such as variant, and its values in order, the
        article's first.
        described: further columns of points for the table.
        setup_phases: phases before training that are part of the epoch's time.
    """

    study: str
    dataset: str
    train_images: int
    evaluated_images: int
    unit: str
    ways: tuple[str, tuple[str, ...]]
    described: tuple[str, ...] = ()
    setup_phases: tuple[str, ...] = ()

    def table(
        self, evidence: Evidence, points: pandas.DataFrame, printed: pandas.DataFrame
    ) -> pandas.DataFrame:
        """Return the time of an epoch for each point, and the published times.

        Args:
            evidence: with the rows of the points.
            points: lines of the summary.
            printed: published rows of one epoch; rows without seconds are left out.

        Returns:
            Columns: machine, chip, device, variant, those of `ways` and `described`, source,
            dataset, setup_seconds (if set-up is part of the epoch), train_seconds,
            evaluate_seconds, seconds, low, high (with the errors of all parts), interval (the
            kind of bounds), num_windows, verdict, status, point. The columns of times are named
            by `unit`. Training and the whole are missing for a point that failed before its
            first window; the parts and the point are missing for a published time.
        """
        rows, lines = evidence.counting(self.study)[READ], []
        phases = [*self.setup_phases, "evaluate"]
        own = dict(iter(rows[rows["phase"].isin(phases)].groupby(["machine", "point"])))
        for point in points.to_dict("records"):
            line = dict.fromkeys(("setup", "evaluate"))
            train = tables.inverse(point, "samples_per_second", "train", self.train_images)
            found = [Interval(train["train"], train["low"], train["high"], point["interval"])]
            of_point = own.get((point["machine"], point["point"]), rows[:0])
            for part, number in self._rest(of_point).items():
                found.append(number)
                line[part] = number.value
            line["train"] = train["train"]
            if pandas.notna(line["train"]):  # else it failed before its first window
                line |= intervals.total(*found).columns("seconds")
            lines.append(line)
        names = ["setup", "evaluate", "train", "seconds", "low", "high", "interval"]
        times = pandas.DataFrame(lines, points.index, names)
        measured = points.assign(source="measured", **times)
        printed = tables.with_bounds(printed[printed["seconds"].notna()], "seconds").assign(
            point=None
        )

        way, order = self.ways
        parts = ["setup", "train", "evaluate"][not self.setup_phases :]
        columns = ["machine", "chip", "device", *dict.fromkeys(["variant", way]), *self.described]
        columns += ["source", "dataset", *parts, "seconds", *tables.MEASURED, "status", "point"]
        table = pandas.DataFrame(
            [*printed.to_dict("records"), *measured.to_dict("records")], columns=columns
        )
        times = [*parts, "seconds", "low", "high"]
        table[times] = table[times].astype(float) / SECONDS[self.unit]
        ranked = table.assign(rank=table[way].map(order.index)).sort_values(
            ["source", "machine", "device", "rank"]
        )
        named = {part: f"{part}_{self.unit}" for part in parts} | {"seconds": self.unit}
        return ranked[columns].rename(columns=named).reset_index(drop=True)

    def _rest(self, rows: pandas.DataFrame) -> dict[str, Interval]:
        """Return the seconds of a point's set-up and of its evaluation, where it has them."""
        found, seconds = {}, rows[rows["phase"].isin(self.setup_phases) & rows["seconds"].notna()]
        if len(seconds):
            value = seconds.groupby("phase")["seconds"].median().sum()
            of_runs = seconds.groupby("run_id")["seconds"].sum().astype(float)
            found["setup"] = intervals.of_processes(float(value), of_runs, of_runs.index)
        rates = rows[(rows["phase"] == "evaluate") & (rows["samples_per_second"] > 0).fillna(False)]
        if len(rates):
            rate = rates["samples_per_second"].astype(float)
            value = self.evaluated_images / rate.median()
            found["evaluate"] = intervals.of_processes(value, 1 / rate, rates["run_id"])
        return found

    def quantities(self, table: pandas.DataFrame, name: str) -> list[dict]:
        """Return the seconds of measured epochs that repeat the article's, for claims.

        Such an epoch was run in the article's way on the article's data set, with an evaluation
        and without a failure.

        Args:
            table: from `table`.
            name: of the quantity, after `cpu_` or `accelerator_`.
        """
        way, (article_way, *_) = self.ways
        alike = {"source": "measured", "dataset": self.dataset, "status": "ok", way: article_way}
        whole = records.having(table, **alike).dropna(subset=f"evaluate_{self.unit}")
        whole = whole.assign(
            **{time: whole[time] * SECONDS[self.unit] for time in (self.unit, "low", "high")}
        )
        processors = ["cpu" if device == "cpu" else "accelerator" for device in whole["device"]]
        return [
            quantities.between(epoch, f"{processor}_{name}", self.unit)
            for epoch, processor in zip(whole.to_dict("records"), processors, strict=True)
        ]

    def template(self, name: str, **usual: object) -> Template:
        """Return how an epoch is said; `name` is what it is of, and `usual` the article's
        settings."""
        way, (article_way, *_) = self.ways
        return Template(
            f"{{number}} an epoch of {name}{{bounds}} on {{place}}",
            self.unit,
            self.unit,
            "least",
            usual={way: article_way, "dataset": self.dataset} | usual,
        )

    @property
    def parts(self) -> dict[str, str]:
        """Return the columns of `table` that add up to an epoch, with their names, for
        `charts.Bars`."""
        return {
            f"{part}_{self.unit}": name
            for part, name in PARTS.items()
            if part != "setup" or self.setup_phases
        }


def input_shares(
    points: pandas.DataFrame,
    ready: pandas.DataFrame,
    on: list[str],
    described: tuple[str, ...] = (),
) -> pandas.DataFrame:
    """Return the share of a step that is input: the host's wait, and the time that ready batches
    would save.

    Args:
        points: lines of a summary.
        ready: rates of steps on batches that are already on the device, with the columns of
        RATE, by `on`.
        on: columns that match a point with its rate on ready batches.
        described: further columns of points for the table.

    Returns:
        Columns: machine, device, dataset, variant, those of `described`, waited (host wait over
        window), waited_low and waited_high (the range of windows), share (1 - step on a ready
        batch / step; missing if no such step was timed), share_low, share_high, share_interval
        (the kind of these bounds), num_windows, verdict, status.
    """
    joined = points[points["seconds_per_step"].notna()].join(ready.add_suffix("_ready"), on=on)
    saved = []
    for line in joined.to_dict("records"):
        rates = (
            Interval.from_row(line, *RATE),
            Interval.from_row(line, *(f"{name}_ready" for name in RATE)),
        )
        share = intervals.combine(lambda with_input, without: 1 - with_input / without, *rates)
        saved.append(share.columns("share", *BOUNDS))
    names = ["share", *BOUNDS]
    saved = pandas.DataFrame(saved, joined.index, names).astype(dict.fromkeys(names[:3], float))
    if "verdict_ready" in joined:
        joined["verdict"] = list(map(verdicts.worse, joined["verdict"], joined["verdict_ready"]))
    joined = joined.assign(waited=joined["input_share_waited"], **saved)
    columns = ["machine", "device", "dataset", "variant", *described]
    columns += ["waited", "waited_low", "waited_high", *names, "num_windows", "verdict", "status"]
    return joined[columns].reset_index(drop=True)


def share_template(what: str) -> Template:
    """Return how the shares of a table with the columns BOUNDS renamed are said; `what` takes the
    share."""
    return Template(
        f"{what} takes {{number}}{{bounds}} of a training step on {{place}}",
        "share",
        "%",
        equal=0,
        same=f"{what} takes a share of a step that is not distinguishable from 0",
    )
