"""The epoch that an article timed, with all that its time held, and how long the same takes at measured rates.

Measured rows keep training, evaluation and set-up apart; here they are added, each scaled to the article's images.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy
import pandas

from benchbook.judging import wording
from benchbook.record.naming import Names
from benchbook.studies import charts, figures, findings, quantities, tables
from benchbook.studies.study import Chart, Evidence

SECONDS = {"seconds": 1, "minutes": 60}  # of a unit
PARTS = {"setup": "set-up and first call", "cpu": "training on the CPU", "accelerator": "on an accelerator"}
NONE = (numpy.nan, numpy.nan)
PLACE = ("machine", "device", "framework", "dataset")  # a study without a choice of framework has no such column
PARTS |= {"evaluate": "evaluation", "published": "published (its parts were not printed)"}


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
        columns += ["source", "dataset", *self._parts(), self.unit, "low", "high", "interval"]
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

    def chart(self, name: str, heading: str, note: str, table: charts.Table, what: str, **bars) -> Chart:
        """Return a chart with a bar for each epoch, made of its parts; published ones in grey.

        Args:
            name, heading, note: of the chart.
            table: from the evidence to `table`.
            what: is trained, as in `One MNIST epoch`.
            bars: further attributes of `charts.Bars`; its xlabel says what is timed.
        """
        own = charts.Bars(
            column=self.unit,
            parts=self._parts(),
            names=PARTS,
            least_first=True,
            title=lambda times, names: self._title(times, what, names),
            **bars,
        )
        return Chart(name, heading, note, charts.plot(table, own, shows=f"Bars of {own.xlabel}"))

    def _title(self, table: pandas.DataFrame, what: str, names: Names) -> str:
        """Return which measured epoch is the fastest."""
        if self.measured(table).empty:
            return f"{what}: not measured here yet"
        best = self.fastest(table).to_dict()
        scaled = ", scaled up" if figures.stand_in(best, self.dataset) else ""
        seconds = best[self.unit] * SECONDS[self.unit]
        return f"{what} takes {wording.duration(seconds)} on {names.in_sentence(best)}{scaled}"

    def measured(self, table: pandas.DataFrame) -> pandas.DataFrame:
        """Return the measured epochs of a table that did not fail."""
        return table[(table["source"] == "measured") & table["status"].eq("ok") & table[self.unit].notna()]

    def fastest(self, table: pandas.DataFrame) -> pandas.Series:
        """Return the fastest of the epochs that were measured and did not fail, of which there is at least one."""
        own = self.measured(table)
        return own.loc[own[self.unit].idxmin()]

    def beside_fastest(self, table: pandas.DataFrame, lines: pandas.DataFrame) -> pandas.DataFrame:
        """Return the lines, of this or another table, of the place where the fastest epoch of `table` was measured."""
        place = [name for name in PLACE if name in table and name in lines]
        return lines[(lines[place] == self.fastest(table)[place]).all(axis=1)]

    def input_share(self, table: pandas.DataFrame, shares: pandas.DataFrame) -> float | None:
        """Return how much of a step is input where the fastest epoch was measured; None where that is unknown.

        Args:
            table: from `table`, with at least one epoch that was measured.
            shares: from `input_shares.table`; of several ways the first counts, the article's.
        """
        way, order = self.ways
        own = self.beside_fastest(table, shares).dropna(subset="share")
        return own.loc[own[way].map(order.index).idxmin(), "share"] if len(own) else None

    def printed_sentence(self, table: pandas.DataFrame) -> str:
        """Return what the article's machines take; empty where it printed no epoch."""
        printed = table.loc[(table["source"] != "measured") & table[self.unit].notna(), self.unit] * SECONDS[self.unit]
        return f"The article's machines take {wording.span(printed, wording.duration)}." if len(printed) else ""

    def sentence(self, evidence: Evidence, table: pandas.DataFrame, what: str, ways: Mapping[str, str]) -> str:
        """Return how long the article's epoch takes on the fastest machine, in its way and in the fastest one.

        Args:
            evidence: with the points of the table.
            table: from `table`, with at least one epoch that was measured.
            what: is trained, as in `One MNIST epoch`.
            ways: by value of the column of ways, how a sentence names it.
        """
        own, best = self.measured(table), self.fastest(table)
        alike = self.beside_fastest(table, own)
        way, (first, *_) = self.ways
        named = pandas.concat([alike[alike[way] == first].head(1), alike.loc[[best.name]]]).drop_duplicates(way)
        lines = named.to_dict("records")
        size = SECONDS[self.unit]
        times = [f"{wording.duration(line[self.unit] * size)} {ways.get(line[way], line[way])}" for line in lines]
        scaled = findings.stand_in(best.to_dict(), self.dataset)
        hedges = findings.hedged(
            evidence, lines, f"scaled up from {scaled.partition(' in place')[0]}" if scaled else ""
        )
        place = findings.place(evidence, best.to_dict(), own)
        return f"{what} takes {wording.joined(times)} on {place}{hedges}"

    def _parts(self) -> dict[str, str]:
        """Return the columns of an epoch's parts, with the names of their colours; empty is the device's."""
        setup = {f"setup_{self.unit}": "setup"} if self.setup_phases else {}
        return setup | {f"train_{self.unit}": "", f"evaluate_{self.unit}": "evaluate"}

    def _beside_training(self, rows: pandas.DataFrame) -> dict[tuple[str, str], tuple[float, float]]:
        """Return the seconds of set-up, and images a second of evaluation, of each machine's points; NaN without."""
        key = ["machine", "point"]
        phases = rows[rows["phase"].isin(self.setup_phases)].groupby([*key, "phase"])["seconds"].median()
        setup = phases.astype(float).groupby(key).sum(min_count=1).rename("setup")
        tests = rows[rows["phase"] == "evaluate"]
        evaluated = tests["samples_per_second"].astype(float).groupby([tests[name] for name in key]).median()
        both = pandas.concat([setup, evaluated.rename("evaluated")], axis=1)
        return {place: (line.setup, line.evaluated) for place, line in zip(both.index, both.itertuples(), strict=True)}
