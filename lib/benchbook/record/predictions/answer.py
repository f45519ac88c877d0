"""What a chip would take for a work: rate, time, dollars and joules, each with an interval and what it rests on."""

import datetime
import functools
import math
from dataclasses import asdict

import numpy
import pandas

from benchbook import record
from benchbook.judging import wording
from benchbook.record import articles, chips, estimate, marks, networks
from benchbook.record.predictions import judged, money, power, several
from benchbook.record.predictions.features import (
    COLUMNS,
    DATE,
    HERE,
    RECORD,
    Unknown,
    chip_figures,
    family,
    observations,
    usual_ratio,
)
from benchbook.record.predictions.model import Model
from benchbook.record.predictions.observed import of_rows
from benchbook.record.predictions.question import Answer, Question, Range
from benchbook.rows import records

NEAREST = 5  # figures shown beside an answer
BEYOND = 2.0  # times the least or the most operations on record: further than that a work is unlike all of it
NEW = "not on record"  # the publication of a work that nobody published: our own


class Forecaster:
    """What the record, and what was measured beside it, say of chips and works that nobody put together."""

    def __init__(self, further: pandas.DataFrame | None = None):
        """Learn from the record.

        Args:
            further: observations beside it, as `features.observations` has them, such as a machine's own.
        """
        self.figures = record.read()
        self.figures["product"] = self.figures["chip"].map(chips.product)
        lines = [observations(self.figures), of_rows(articles.rows())]
        self.model = Model(pandas.concat([*lines, *([] if further is None else [further])], ignore_index=True))
        self.residuals = judged.residuals(self.model)
        self._columns = judged.columns(self.residuals)

    @functools.cached_property
    def published(self) -> pandas.DataFrame:
        """Return every known rate as it would have been predicted; see `judged.published`."""
        return judged.published(self.residuals)

    @functools.cached_property
    def efficiencies(self) -> pandas.DataFrame:
        """Return what several devices reached of as many times one; see `several.efficiencies`."""
        return several.efficiencies(self.figures)

    def rate(self, question: Question) -> Range:
        """Return images a second of all devices together.

        Raises:
            Unknown: the chip's figures, the work's operations or the count of devices are not known; the message names
                what is missing.
            UnknownChip: no chip goes by that name.
            ValueError: a precision that does not exist.
        """
        target, situation = self.target(question)
        of, vendor = target["family"].iloc[0], target["vendor"].iloc[0]
        basis = judged.choose(self._columns, situation, of, vendor)
        ruled = self._ruled(target)[basis] if basis != judged.MODEL else math.nan
        basis = judged.MODEL if math.isnan(ruled) else basis
        guess = self.model.predict(target)
        far = judged.reach(self._columns, basis, situation, of, vendor)
        middle, far = (float(guess.mean[0]), far * float(guess.deviation[0])) if basis == judged.MODEL else (ruled, far)
        growth, growth_far = several.scale(self.efficiencies, question.count)
        middle, far = middle + growth, math.hypot(far, growth_far)
        text = f"{basis}: {self._basis(target)}"
        return Range(math.exp(middle), math.exp(middle - far), math.exp(middle + far), text)

    def _ruled(self, target: pandas.DataFrame) -> pandas.Series:
        """Return what the plain rules say of a target, from the chips that did its work, in logarithms."""
        lines = self.model.observations
        alike = lines[lines["work"].eq(target["work"].iloc[0]) & lines["family"].eq(target["family"].iloc[0])]
        both = pandas.concat([alike, target.assign(rate=1.0)], ignore_index=True)
        return judged.rules(both, judged.BOTH).iloc[-1]

    def target(self, question: Question) -> tuple[pandas.DataFrame, str]:
        """Return the question as a line of features, and the situation in which it is judged."""
        if question.precision not in records.PRECISIONS:
            raise ValueError(f"precision {question.precision!r}; allowed: {', '.join(records.PRECISIONS)}")
        chip = chips.resolve(question.chip)
        figures = chip_figures(chip, question.precision, asked=True)
        if question.precision == "tf32" and not chips.has_tf32(chip):
            raise Unknown(f"{chip} has no units for TF32; ask for fp32")
        work = self._work(question)
        printed = chips.table().loc[chip]
        here = self._here(printed["vendor"])
        is_in_record = self._has(product=printed["product"])
        size = f"{work.name}, {work.image_size:g} px" if work.image_size else work.name
        line = dict.fromkeys(COLUMNS) | {
            "publication": HERE if here else NEW, "setting": NEW, "work": size, "network": work.name,
            "precision": question.precision,
            "family": family(question.precision), "framework": "pytorch", "chip": chip, "product": printed["product"],
            "vendor": printed["vendor"], "batch_size": question.batch_size or 64.0, "date": DATE, "loader": 0.0,
            "no_update": 0.0, "flops_per_sample": work.flops_per_sample,
        }  # fmt: skip
        situation = judged.CHIP if here else judged.PUBLICATION if is_in_record else judged.BOTH
        target = pandas.DataFrame([line | figures])
        return target.astype({"flops_per_sample": float, "image_size": float}), situation

    def ask(self, question: Question, today: datetime.date, hourly: float | None = None, own=None) -> Answer:
        """Return all that can be said to a question.

        Args:
            question: what is asked.
            today: from which the age of prices is counted.
            hourly: US dollars for an hour of one device, one's own; None: those on record.
            own: further prices, from `money.own_prices`.

        Raises:
            Unknown, UnknownChip, ValueError: see `rate`.
        """
        rate = self.rate(question)
        chip = chips.resolve(question.chip)
        times = sorted(question.images / value for value in (rate.low, rate.high))
        seconds = Range(question.images / rate.value, *times, f"{question.images:g} images at that rate")
        offers = money.rented(chip, today, own)
        if hourly is not None:
            stated = {"chip": chip, "provider": "as stated", "usd_per_hour": hourly, "includes": "as stated"}
            offers = pandas.DataFrame([stated], columns=money.OFFERS)
        for name in ("value", "low", "high"):
            hours = getattr(seconds, name) / estimate.SECONDS_PER_HOUR * question.count
            offers["dollars" if name == "value" else name] = offers["usd_per_hour"].astype(float) * hours
        purchases = money.bought(chip, today, own)
        purchases["hours_to_break_even"] = purchases["usd"].astype(float) / money.usual_rent(offers)
        asked = Question(**(asdict(question) | {"chip": chip}))
        return Answer(
            asked, rate, seconds, offers, purchases, self._joules(question, rate), self.nearest(question),
            self._error(question), self._notes(offers, purchases),
        )  # fmt: skip

    def nearest(self, question: Question) -> pandas.DataFrame:
        """Return what was published or measured nearest to a question: the same product or work, chips alike first."""
        target, _ = self.target(question)
        asked, lines = target.iloc[0], self.model.observations
        figures = ["peak", "bandwidth"]
        far = numpy.sqrt(((lines[figures].astype(float) - asked[figures].astype(float)) ** 2).sum(axis=1))
        far += 3.0 * (lines["network"] != asked["network"]) + 1.0 * (lines["family"] != asked["family"])
        far += 2.0 * (lines["product"] != asked["product"])
        order = lines.assign(far=far).sort_values("far", kind="stable").head(NEAREST)
        return order[["chip", "work", "precision", "rate", "source"]].reset_index(drop=True)

    def check_operations(self, name: str, flops_per_sample: float) -> None:
        """Refuse a work whose operations for an image are far from those of all works on record.

        Raises:
            Unknown: they are, or nobody counted them.
        """
        lines = self.model.observations
        operations = lines.loc[lines["origin"].eq(RECORD), "flops_per_sample"].dropna()
        least, most = operations.min() / BEYOND, operations.max() * BEYOND
        if not least <= flops_per_sample <= most:
            raise Unknown(
                f"{name} takes {wording.number(flops_per_sample)} operations an image; works on record take"
                f" {wording.number(operations.min())} to {wording.number(operations.max())}, and no rate of one so"
                " unlike them is known"
            )

    def _work(self, question: Question) -> networks.Network:
        """Return the work of a question, if anything on record is like it."""
        lines = self.model.observations
        if question.flops_per_sample:
            work = networks.Network("given", question.image_size, question.flops_per_sample)
        elif question.work:
            work = networks.describe(question.work, question.image_size)
        else:
            raise Unknown("neither a work nor the operations of an image are given")
        if work.flops_per_sample is None:
            names = sorted(set(networks.table().index) | set(lines["network"]))
            if work.name not in set(lines["network"]):
                raise Unknown(f"work {question.work!r}; allowed: {', '.join(names)}, or the operations of an image")
            return networks.Network(work.name, work.image_size or self._size(work.name))
        self.check_operations(work.name, work.flops_per_sample)
        return work

    def _size(self, network: str) -> float | None:
        sizes = self.model.observations.loc[self.model.observations["network"] == network, "image_size"].dropna()
        return float(sizes.mode().iloc[0]) if len(sizes) else None

    def _here(self, vendor: str) -> bool:
        """Return whether chips of a maker were measured here: then our own publication is no unknown one."""
        lines = self.model.observations
        return bool((lines["publication"].eq(HERE) & lines["vendor"].eq(vendor)).any())

    def _has(self, **values: str) -> bool:
        lines = self.model.observations
        return any(lines[name].eq(value).any() for name, value in values.items())

    def _basis(self, target: pandas.DataFrame) -> str:
        lines = self.model.observations
        chip, work = target["product"].iloc[0], target["work"].iloc[0]
        of_chip, of_work = lines["product"].eq(chip).sum(), lines["work"].eq(work).sum()
        text = f"{of_chip} published rates of {chip}" if of_chip else f"the printed figures of {chip}, of which no rate"
        of_works = f"{of_work} of {work}" if of_work else "the operations of the work, of which no rate was published"
        text = f"{text}, and {of_works}" if of_chip else f"{text} was published, and {of_works}"
        if numpy.isnan(chips.table().loc[target["chip"].iloc[0], "fp32_tflops"]):
            text += (
                f"; its fp32 peak was not published and is taken as its peak in 16 bits divided by {usual_ratio():.2g},"
                " the median of other chips"
            )
        return text

    def _error(self, question: Question) -> str:
        """Return how far such predictions are off, in a sentence."""
        target, situation = self.target(question)
        of, vendor = target["family"].iloc[0], target["vendor"].iloc[0]
        alike = judged.published(self.residuals[self.residuals["situation"].eq(situation)])
        own = alike[alike["vendor"].eq(vendor) & alike["family"].eq(of)]
        words = f"{situation}, {vendor}, {of}" if len(own) >= judged.FEWEST else f"{situation}, all makers"
        own = own if len(own) >= judged.FEWEST else alike
        off = numpy.median(numpy.abs(numpy.expm1(own["off"])))
        return f"such predictions are off by {off:.0%} (median of {len(own)}; {words})"

    def _joules(self, question: Question, rate: Range) -> Range | None:
        drawn = power.of(chips.resolve(question.chip), power.measured(self.figures))
        if drawn is None:
            return None
        watts, least, most, boundary, source = drawn
        total = question.count
        low, high = least * total / rate.high, most * total / rate.low
        basis = f"{watts:.0f} W a device ({least:.0f} to {most:.0f}) in training, measured on: {boundary}; {source}"
        return Range(watts * total / rate.value, low, high, basis)

    def _notes(self, offers: pandas.DataFrame, purchases: pandas.DataFrame) -> list[str]:
        notes = []
        if offers.empty:
            notes.append("no price by the hour was read for this chip")
        if purchases.empty:
            notes.append("no purchase price was read for this chip")
        return notes


@functools.cache
def of_the_record() -> Forecaster:
    """Return what the record alone says; it is learnt once in a process."""
    return Forecaster()
