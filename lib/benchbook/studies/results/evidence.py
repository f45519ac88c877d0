"""The rows behind all tables and charts, and what is derived from them once."""

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

import pandas

from benchbook.judging import statistics, verdicts
from benchbook.machine import condition, layout
from benchbook.machine.terminal import printable
from benchbook.record import articles, naming
from benchbook.rows import ceilings, records
from benchbook.studies.checks import CHECKS

SECONDS = {
    "milliseconds": 1e-3,
    "seconds": 1.0,
    "minutes": 60.0,
    "hours": 3600.0,
}  # in units of time
COUNTS = [
    "batch_size",
    "image_size",
    "sequence_length",
    "num_workers",
    "device_count",
    "dataset_samples",
    "parameters",
]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The rows behind all tables and charts. Attributes derived from them are computed on first
    use, then cached.

    Attributes:
        rows: measured and published rows of any studies.
        conditions: from `condition.samples`, for the verdicts; None if there are no samples.
        folder: with the measured rows and their manifests; None if no chart needs a manifest.
        own_first: whether an answer is about the measured work, even if others are published, as
        in a notebook.
        prices: from `articles.prices`.
        yours: the reader's own machines, in a table of several.
        runs: one line per measured run, with whether it speaks; see `verdicts.runs`.
        measured: the measured rows that speak. published: the rows of articles.
        summary: one line per measured point, with its verdict; see `verdicts.summarise`.
        ceilings: the best rates measured on each device in any session; see `rows.ceilings`.
        names: display names of machines and devices; see `naming.from_rows`.
    """

    rows: pandas.DataFrame
    conditions: pandas.DataFrame | None = None
    folder: Path | None = None
    own_first: bool = False
    prices: pandas.DataFrame = field(default_factory=articles.prices)
    yours: frozenset[str] = frozenset()

    runs = cached_property(lambda self: verdicts.runs(self.rows, self.conditions))
    measured = cached_property(lambda self: verdicts.speaking(self.rows, self.runs))
    published = cached_property(lambda self: self.rows[self.rows["source"] != "measured"])
    _counting = cached_property(lambda self: verdicts.counting(self.measured, self.runs))
    summary = cached_property(
        lambda self: verdicts.summarise(self.rows, self.conditions, self.runs)
    )
    _by_point = cached_property(
        lambda self: self.summary.set_index(statistics.POINT_KEY, drop=False)
    )
    ceilings = cached_property(
        lambda self: ceilings.ceilings(self.rows[self.rows["source"] == "measured"])
    )
    names = cached_property(lambda self: naming.from_rows(self.rows, self.folder, self.yours))

    @classmethod
    def of_machine(cls, machine: str = "", point: str = "", session: str = "") -> "Evidence":
        """Return the rows of one machine or all, and the published rows; what `Checker.read`
        leaves out is printed. Rows of another computer under the machine's name are left out.

        Args:
            machine: its name; empty: all machines.
            point: study and name, such as `calibrate/cpu-fp32`, of the only point; empty: all.
            session: the only one of the rows; empty: all.

        Raises:
            ValueError: all of the rows are left out; the message says why.
        """
        folder = layout.runs(machine) if machine else layout.outputs() / "runs"
        said = []
        rows, described = CHECKS.read(folder / point, said.append)
        if rows.empty and said:
            raise ValueError("; ".join(said))
        for line in said:
            print(printable(line))
        conditions = condition.samples(described)
        rows = rows[rows["machine"] == machine] if machine and not session else rows
        rows = rows[rows["session"] == session] if session else rows
        return cls(
            pandas.concat([rows, articles.rows()], ignore_index=True),
            conditions,
            folder,
            bool(machine),
        )

    def counting(self, study: str, **values: object) -> pandas.DataFrame:
        """Return a study's measured rows with these values that speak and count; see
        `verdicts.counting`."""
        return records.having(self._counting, study=study, **values)

    def point(self, machine: str, study: str, name: str) -> dict:
        """Return a point's line of the summary; empty if it has none."""
        key = machine, study, name
        return self._by_point.loc[key].to_dict() if key in self._by_point.index else {}

    def printed(self, study: str, **values: object) -> pandas.DataFrame:
        """Return the published rows of a study with these values; see `records.having`."""
        return records.having(self.published, study=study, **values)

    def without_wrong(self) -> "Evidence":
        """Return the evidence without the measured rows of points that trained wrong; see
        `verdicts`."""
        wrong = self.summary.loc[self.summary["status"] == verdicts.WRONG, statistics.POINT_KEY]
        if wrong.empty:
            return self
        keys = pandas.MultiIndex.from_frame(self.rows[statistics.POINT_KEY])
        left_out = (
            keys.isin(pandas.MultiIndex.from_frame(wrong))
            & (self.rows["source"] == "measured").array
        )
        return replace(self, rows=self.rows[~left_out])

    def points(self, study: str) -> pandas.DataFrame:
        """Return a study's lines of the summary, with the peak memory of training; counts are
        whole numbers."""
        lines, rows = self.summary[self.summary["study"] == study], self.counting(study)
        peaks = (
            rows[rows["phase"] == "train"].groupby(["machine", "point"])["peak_memory_bytes"].max()
        )
        return lines.astype(dict.fromkeys(COUNTS, "Int64")).join(peaks, on=["machine", "point"])


# Caches a table for each evidence: charts, quantities and costs ask for the same tables.
cached = lru_cache(maxsize=8)
