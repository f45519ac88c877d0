"""The epoch that an article timed, with all that its time held, and how long the same takes at measured rates.

Measured rows keep training, evaluation and set-up apart; here they are added, each scaled to the article's images.
"""

from dataclasses import dataclass

import numpy
import pandas

from benchbook.judging import wording
from benchbook.studies import charts, quantities, tables
from benchbook.studies.findings import Says
from benchbook.studies.study import Evidence

SECONDS = {"seconds": 1, "minutes": 60}  # of a unit
PARTS = {"train": "training", "setup": "set-up and first call", "evaluate": "evaluation"}
NONE = (numpy.nan, numpy.nan)
PLACE = ("machine", "device", "framework", "dataset")  # a study without a choice of framework has no such column


@dataclass(frozen=True)
class ArticleEpoch:
    """What an article calls an epoch.

    Attributes:
        study: its name.
        dataset: the article's; others stand in for it.
        train_images: of an epoch.
        evaluated_images: of one evaluation.
        unit: of the table's times, a key of SECONDS.
        ways: column that says how a point was run, with its values in the order of the table.
        described: further columns of points that the table shows.
        setup_phases: phases before the training whose seconds count.
    """

    study: str
    dataset: str
    train_images: int
    evaluated_images: int
    unit: str
    ways: tuple[str, tuple[str, ...]]
    described: tuple[str, ...] = ()
    setup_phases: tuple[str, ...] = ()

    def table(self, evidence: Evidence, points: pandas.DataFrame, printed: pandas.DataFrame) -> pandas.DataFrame:
        """Return how long an epoch takes; its bounds are those of the training part.

        Args:
            evidence: with the rows of the points.
            points: lines of the summary.
            printed: published rows of one epoch; those without seconds are left out.

        Returns:
            Columns: machine, chip, device, variant, those of `ways` and `described`, source, dataset, setup_seconds
            (where set-up counts), train_seconds, evaluate_seconds, seconds, low, high, interval (its kind),
            num_windows, verdict, status, point; the times named by `unit`. Times are missing where a point failed
            before its first window, parts and point where an article printed the time.
        """
        size = SECONDS[self.unit]
        printed = tables.with_bounds(printed[printed["seconds"].notna()], "seconds")
        sizes = {self.unit: printed["seconds"] / size, "low": printed["low"] / size, "high": printed["high"] / size}
        times = printed.assign(**sizes, point=None).to_dict("records")
        rest = self._beside_training(evidence.newest(self.study))
        for point in points.to_dict("records"):
            setup, evaluated = rest.get((point["machine"], point["point"]), NONE)
            setup, evaluate = setup / size, self.evaluated_images / evaluated / size
            rates = {self.unit: "samples_per_second", "low": "high", "high": "low"}
            train = {name: self.train_images / point[rate] / size for name, rate in rates.items()}
            parts = {"setup": setup, "train": train[self.unit], "evaluate": evaluate}
            added = sum(time for time in (setup, evaluate) if pandas.notna(time))
            times.append(
                point
                | {f"{part}_{self.unit}": time for part, time in parts.items()}
                | {name: time + added for name, time in train.items()}
                | {"source": "measured"}
            )
        way, order = self.ways
        columns = ["machine", "chip", "device", "variant", *([way] if way != "variant" else []), *self.described]
        parts = [f"{part}_{self.unit}" for part in ("setup", "train", "evaluate")][not self.setup_phases :]
        columns += ["source", "dataset", *parts, self.unit, "low", "high", "interval"]
        columns += ["num_windows", "verdict", "status", "point"]
        table = pandas.DataFrame(times, columns=columns)
        ranked = table.assign(rank=table[way].map(order.index)).sort_values(["source", "machine", "device", "rank"])
        return ranked[columns].reset_index(drop=True)

    def seconds(self, table: pandas.DataFrame) -> dict[tuple[str, str], float]:
        """Return the seconds of each measured epoch of a table, by machine and point."""
        measured = table[table["source"] == "measured"]
        times = measured[self.unit] * SECONDS[self.unit]
        return dict(zip(zip(measured["machine"], measured["point"], strict=True), times, strict=True))

    def quantities(self, table: pandas.DataFrame, name: str) -> list[dict]:
        """Return the seconds of epochs that repeat the article's, for claims.

        Those are measured ones in its own way, on its own data set, evaluated and without a failure.

        Args:
            table: from `table`.
            name: of the quantity, after `cpu_` or `accelerator_`.
        """
        way, (own, *_) = self.ways
        alike = (table["source"] == "measured") & (table[way] == own) & (table["dataset"] == self.dataset)
        whole = table[alike & (table["status"] == "ok") & table[f"evaluate_{self.unit}"].notna()]
        whole = whole.assign(**{time: whole[time] * SECONDS[self.unit] for time in (self.unit, "low", "high")})
        processors = ["cpu" if device == "cpu" else "accelerator" for device in whole["device"]]
        return [
            quantities.between(epoch, f"{processor}_{name}", self.unit)
            for epoch, processor in zip(whole.to_dict("records"), processors, strict=True)
        ]

    def says(self, what: str, none: str) -> Says:
        """Return the sentence on the fastest epoch; `what` is trained, as in `One MNIST epoch`."""
        size, way = SECONDS[self.unit], self.ways[0]
        text = f"{what} ({{{way}}}) takes {{value}} on {{place}}"
        return Says(text, none, self.unit, lambda time: wording.duration(time * size), "least")

    def chart(self, name: str, heading: str, note: str, table: charts.Table, title: Says, **bars) -> charts.Bars:
        """Return a chart with a bar for each epoch, made of its parts; published ones in grey.

        Args:
            name, heading, note: of the chart.
            table: from the evidence to `table`.
            title: from `says`.
            bars: further attributes of `charts.Bars`; its xlabel says what is timed.
        """
        held = [part for part in PARTS if part != "setup" or self.setup_phases]
        parts = {f"{part}_{self.unit}": PARTS[part] for part in held}
        look = {"column": self.unit, "parts": parts, "least_first": True, "usual": {"dataset": self.dataset}}
        return charts.Bars(name, heading, note, table=table, title=title, **look, **bars)

    def beside_fastest(self, table: pandas.DataFrame, lines: pandas.DataFrame) -> pandas.DataFrame:
        """Return the lines, of this or another table, of the place where the fastest measured epoch was; else all."""
        best = self.says("", "").line(table)
        if best is None or best["source"] != "measured":
            return lines
        place = [name for name in PLACE if name in table and name in lines]
        return lines[(lines[place] == pandas.Series(best)[place]).all(axis=1)]

    def first_share(self, table: pandas.DataFrame, shares: pandas.DataFrame) -> pandas.DataFrame:
        """Return how much of a step is input where the fastest epoch was measured; of several ways the article's.

        Args:
            table: from `table`.
            shares: from `input_shares.table`.
        """
        way, order = self.ways
        own = self.beside_fastest(table, shares).dropna(subset="share")
        return own.sort_values(way, key=lambda ways: ways.map(order.index)).head(1)

    def _beside_training(self, rows: pandas.DataFrame) -> dict[tuple[str, str], tuple[float, float]]:
        """Return the seconds of set-up, and images a second of evaluation, of each machine's points; NaN without."""
        key = ["machine", "point"]
        phases = rows[rows["phase"].isin(self.setup_phases)].groupby([*key, "phase"])["seconds"].median()
        setup = phases.astype(float).groupby(key).sum(min_count=1).rename("setup")
        tests = rows[rows["phase"] == "evaluate"]
        evaluated = tests["samples_per_second"].astype(float).groupby([tests[name] for name in key]).median()
        both = pandas.concat([setup, evaluated.rename("evaluated")], axis=1)
        return {place: (line.setup, line.evaluated) for place, line in zip(both.index, both.itertuples(), strict=True)}
