"""Predict rate, time, dollars and joules of a chip for a work, each with an interval and its basis."""

import datetime
import functools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy
import pandas

from benchbook.judging import wording
from benchbook.record import articles, chips, estimate, model, rates
from benchbook.record.model import Model
from benchbook.record.rates import HERE, RECORD, Unknown
from benchbook.rows import networks, records

IMAGENET = 1_281_167  # training images
TOKENS = 1e9  # tokens to train on, if the question has no number
SEQUENCES = 8.0  # batch size, if the question has none
NEAREST = 5  # number of published figures shown with an answer
LEAST_COVERAGE = 0.85  # below this coverage of 90 % intervals, an answer has a warning
BEYOND = 2.0  # allowed factor below the fewest and above the most operations on record
NEW = "not on record"  # the publication of an unpublished work, such as the user's network
MOST = 8  # devices of a machine; no publication on record compares more with one
PRECISIONS = tuple(name for name in records.PRECISIONS if name != "fp64")  # the record has no rates of fp64
SAME = ["article", "product", "network", "image_size", "computed", "framework", "data"]


@dataclass(frozen=True)
class Question:
    """A question: which chip, which work, and how much of it.

    Attributes:
        chip: any of its names.
        work: a study or a network; empty if the operations are given.
        precision: one of PRECISIONS.
        flops_per_sample: operations of a training step for one image; None: those of the work.
        image_size: pixels of a side; None: the size at which the work's operations were counted.
        sequence_length: tokens; None: the length at which the work's operations were counted.
        batch_size: of one device; None: 64 images or 8 sequences.
        count: number of devices.
        images: images or sequences to train on; None: an epoch of ImageNet, or a billion tokens.
    """

    chip: str
    work: str = ""
    precision: str = "fp32"
    flops_per_sample: float | None = None
    image_size: float | None = None
    batch_size: float | None = None
    count: int = 1
    images: float | None = None
    sequence_length: float | None = None


@dataclass(frozen=True)
class Range:
    """A value with the bounds of its 90 % interval and its basis in words."""

    value: float
    low: float
    high: float
    basis: str


@dataclass(frozen=True)
class Watts:
    """The power of one device in training: median, least and most, with the boundary of the sensor and the sources."""

    median: float
    least: float
    most: float
    boundary: str
    sources: list[str]

    def __str__(self) -> str:
        """Return the power for a sentence."""
        return f"{self.median:.0f} W a device ({self.least:.0f} to {self.most:.0f})"


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    Attributes:
        question: the question, with the chip's canonical name.
        rate: images or sequences a second, on all devices together.
        seconds: for the images or sequences of the question.
        rented: a line for each offer, with dollars, low and high for the images of the question.
        bought: a line for each purchase price, with hours_to_break_even at the median offer.
        joules_per_image: None if the record has no measured power of the chip in this work.
        nearest: the nearest published figures: chip, work, precision, rate, sequence_length, source.
        error: a sentence with the median error and the coverage of such predictions.
        memory_bytes: of a step with Adam; None if the activations of the work were not counted.
        largest_batches: the largest batch that fits, by gigabytes of memory: the chip's, else `networks.MEMORIES`.
        notes: what is unknown or doubtful.
    """

    question: Question
    rate: Range
    seconds: Range
    rented: pandas.DataFrame
    bought: pandas.DataFrame
    joules_per_image: Range | None
    nearest: pandas.DataFrame
    error: str
    memory_bytes: float | None
    largest_batches: dict[float, int]
    notes: list[str]


class Forecaster:
    """Predicts from the record, and from rates measured here, for chips and works that were not measured together."""

    def __init__(self, further: pandas.DataFrame | None = None, of_sequences: bool = False):
        """Learn from the record.

        Args:
            further: more observations with the columns of `rates.of_record`, such as those measured here.
            of_sequences: learn from language models as well, and predict only them. They are few, and learning from
                them would make predictions for images worse.
        """
        self.figures = articles.read()
        self.figures["product"] = self.figures["chip"].map(chips.product)
        self.further, self.of_sequences = further, of_sequences
        lines = rates.concat(rates.of_publications(), further)
        self.model = Model(lines if of_sequences else lines[lines["sequence_length"].isna()])
        # Only the rates of what is predicted: images, or sequences.
        self.lines = self.model.observations
        self.lines = self.lines[self.lines["sequence_length"].notna() == of_sequences]

    @functools.cached_property
    def published(self) -> pandas.DataFrame:
        """Return the predictions of the record's rates with the chip, the publication or both hidden.

        See `model.cross_validated`. Intervals are chosen from published rates alone: rates measured here are few, and
        count as one publication.
        """
        if self.further is not None:
            alone = of_the_record()
            return alone.sequences.published if self.of_sequences else alone.published
        return model.cross_validated(self.model, self.lines.index)

    @functools.cached_property
    def _interval_factors(self) -> dict[str, float]:
        return {situation: model.interval_factor(alike) for situation, alike in self.published.groupby("situation")}

    @functools.cached_property
    def sequences(self) -> "Forecaster":
        """Return the forecaster for networks of sequences."""
        return Forecaster(self.further, of_sequences=True)

    @functools.cached_property
    def watts(self) -> dict[tuple[str, str], Watts]:
        """Return the power of a device in training, by product and network, if both energy and time are on record.

        Power is energy over time if the source has both, else joules an image times images a second in the same
        setting. Sensors of boards are preferred to those of nodes, which include the host. Each network has its own
        power, because works differ in how busy they keep a chip.
        """
        figures, lines = self.figures, []
        energy = figures[figures["metric"].eq("energy_per_image") & figures["phase"].isin(["train", "total"])]
        timed = {_setting(line): line["rate"] for line in figures[figures["rate"].gt(0)].to_dict("records")}
        for line in energy[energy["refused"].eq("")].to_dict("records"):
            details = json.loads(line["settings"])
            stated = re.search(r"J / (\d+) images", line["note"])
            epochs = float(details.get("epochs") or 0) if details.get("dataset") == "imagenet" else 0.0
            images, seconds = float(stated[1]) if stated else epochs * IMAGENET, details.get("seconds")
            rate = images / seconds if images and seconds else timed.get(_setting(line))
            if rate:
                watts = line["value"] * rate / (line["device_count"] or 1)
                where = f"{line['article']}: {line['source']}"
                lines.append((line["product"], line["network"], watts, details["energy_boundary"], where))
        table, found = pandas.DataFrame(lines, columns=["product", "network", "watts", "boundary", "where"]), {}
        for key, own in table.groupby(["product", "network"]):
            boards = own[own["boundary"].str.contains("board")]
            own = own if boards.empty else boards
            median, least, most = map(float, own["watts"].quantile([0.5, 0.0, 1.0]))
            found[key] = Watts(median, least, most, own["boundary"].iloc[0], sorted(set(own["where"])))
        return found

    @functools.cached_property
    def _known(self) -> dict[str, dict]:
        """Return facts about the known rates.

        Counts of rates by product, work and network; "here": counts of measured rates by vendor; "plain": counts by
        product of rates in 16 bits without matrix units; "operations": the fewest and most on record; "sizes": the most
        common image size by network.
        """
        lines = self.lines
        counts = {name: lines[name].value_counts().to_dict() for name in ("product", "work", "network")}
        counts["operations"] = lines.loc[lines["origin"].eq(RECORD), "flops_per_sample"].agg(["min", "max"]).to_dict()
        counts["here"] = lines.loc[lines["publication"].eq(HERE), "vendor"].value_counts().to_dict()
        counts["plain"] = lines.loc[lines["family"].eq(rates.PLAIN_HALF), "product"].value_counts().to_dict()
        sizes = lines.dropna(subset="image_size").groupby("network")["image_size"].agg(lambda own: own.mode().iloc[0])
        return counts | {"sizes": sizes.to_dict()}

    def rate(self, question: Question) -> Range:
        """Return images or sequences a second on all devices together.

        Raises:
            Unknown: the chip's figures or the work's operations are unknown, or no publication on record compares so
                many devices with one; the message names what is missing.
            UnknownChip: no chip has this name.
            ValueError: the precision does not exist.
        """
        (rate,) = self.rates([question])
        if isinstance(rate, Unknown):
            raise rate
        return rate

    def rates(self, questions: Sequence[Question]) -> list[Range | Unknown]:
        """Return the rate of each question, see `rate`, or the error; many questions take little longer than one.

        All questions are about images, or all about sequences.

        A chip without matrix units is predicted in 16 bits to be at least as fast as in fp32, unless measurements show
        otherwise: both use the same units, and 16 bits need less memory bandwidth.
        """
        if not self.of_sequences and any(networks.describe(one.work).sequence_length for one in questions[:1]):
            return self.sequences.rates(questions)
        answers, targets = {}, {}
        for place, question in enumerate(questions):
            try:
                targets[place] = self.target(question) | {"growth": scaling(self.figures, question.count)}
            except Unknown as reason:
                answers[place] = reason
        if targets:
            table = pandas.DataFrame(list(targets.values()))
            table = table.astype(dict.fromkeys(("flops_per_sample", *rates.SIZES), float))
            for (place, target), mean, deviation in zip(targets.items(), *self.model.predict(table), strict=True):
                middle = float(mean) + target["growth"][0]
                factor = self._interval_factors[target["situation"]]
                width = math.hypot(factor * float(deviation), target["growth"][1])
                bounds = [math.exp(log) for log in (middle, middle - width, middle + width)]
                answers[place] = self._bounded_by_launches(questions[place], Range(*bounds, self._basis(target)))
        plain = [place for place, target in targets.items() if target["family"] == rates.PLAIN_HALF]
        plain = [place for place in plain if targets[place]["product"] not in self._known["plain"]]
        fp32 = self.rates([replace(questions[place], precision="fp32") for place in plain]) if plain else []
        for place, other in zip(plain, fp32, strict=True):
            answers[place] = max(answers[place], other, key=lambda rate: rate.value)
        return [answers[place] for place in range(len(questions))]

    @functools.cached_property
    def shortest_step(self) -> float:
        """Return the seconds of the shortest step on record, on one device and with a stated batch size."""
        figures = self.figures
        kept = figures[figures["rate"].gt(0) & figures["refused"].eq("") & figures["device_count"].eq(1)]
        kept = kept[~kept["network"].isin(rates.TINY)]
        return float((kept["batch_size"] / kept["rate"]).min())

    def _bounded_by_launches(self, question: Question, rate: Range) -> Range:
        """Return a rate at which no step is shorter than the shortest on record, because starting a step takes time.

        Without a batch size the chip is assumed to be busy, and the rate is unchanged.
        """
        if not question.batch_size or networks.canonical(question.work) in rates.TINY:
            return rate
        most = question.count * question.batch_size / self.shortest_step
        if rate.high <= most:
            return rate
        value = min(rate.value, most)
        basis = f"{rate.basis}; no step on record is shorter than {1e3 * self.shortest_step:.1f} ms"
        return Range(value, rate.low * value / rate.value, most, basis)

    def target(self, question: Question) -> dict:
        """Return the question as an observation without a rate, with the situation whose error it has."""
        if question.precision not in PRECISIONS:
            raise ValueError(f"precision {question.precision!r}; allowed: {', '.join(PRECISIONS)}")
        figures = rates.chip_figures(question.chip, question.precision, to_predict=True)
        if question.precision == "tf32" and not chips.has_tf32(figures["chip"]):
            raise Unknown(f"{figures['chip']} has no units for TF32; ask for fp32")
        here = figures["vendor"] in self._known["here"]
        situation = model.PUBLICATION if figures["product"] in self._known["product"] else model.BOTH
        line = rates.observation(
            figures, self._work(question), publication=HERE if here else NEW, setting=NEW, framework="pytorch",
            batch_size=question.batch_size or (SEQUENCES if self.of_sequences else None), origin=RECORD,
        )  # fmt: skip
        return line | {"situation": model.ONE_KNOWN if here else situation}

    def ask(self, question: Question, today: datetime.date, hourly: float | None = None) -> Answer:
        """Return the answer to a question.

        Args:
            question: the question.
            today: the day from which the age of prices is counted.
            hourly: the user's price in US dollars for an hour of one device; None: prices on record.

        Raises:
            Unknown, UnknownChip, ValueError: see `rate`.
        """
        work = networks.describe(question.work, question.image_size, question.sequence_length)
        length = work.sequence_length
        if length and not self.of_sequences:
            return self.sequences.ask(question, today, hourly)
        rate, chip = self.rate(question), chips.resolve(question.chip)
        images = question.images or (TOKENS / length if length else IMAGENET)
        question = replace(question, chip=chip, images=images, sequence_length=length)
        bounds = (question.images / value for value in (rate.value, rate.high, rate.low))
        seconds = Range(*bounds, f"{images:g} {'sequences' if length else 'images'} at that rate")
        offers = estimate.rental_offers(chip, today)
        if hourly is not None:
            stated = {"chip": chip, "provider": "as stated", "usd_per_hour": hourly, "includes": "as stated"}
            offers = pandas.DataFrame([stated], columns=estimate.OFFERS)
        for name in ("value", "low", "high"):
            hours = getattr(seconds, name) / estimate.SECONDS_PER_HOUR * question.count
            offers["dollars" if name == "value" else name] = offers["usd_per_hour"].astype(float) * hours
        purchases = estimate.purchase_prices(chip, today)
        usual_rent = float(estimate.usual_offers(offers)["usd_per_hour"].astype(float).median())
        purchases["hours_to_break_even"] = purchases["usd"].astype(float) / usual_rent
        memory = chips.specification(chip).get("memory_gb")
        notes = [] if len(offers) else ["no hourly price is known for this chip"]
        notes += [] if len(purchases) else ["no purchase price is known for this chip"]
        target = self.target(question)
        joules, family = None, target["family"]
        if watts := self.watts.get((target["product"], target["network"])):
            basis = f"{watts} in training, measured at: {watts.boundary}; {'; '.join(watts.sources)}"
            bounds = (watts.median / rate.value, watts.least / rate.high, watts.most / rate.low)
            joules = Range(*(question.count * bound for bound in bounds), basis)
        alike = self.published[self.published["family"].eq(family) & self.published["situation"].eq(model.CHIP)]
        coverage = model.error_measures(alike)["coverage"]
        if len(alike) >= model.FEWEST and coverage < LEAST_COVERAGE:
            held = f"{coverage:.0%} of {len(alike)} hidden rates"
            notes.append(f"rough guess: in {family}, 90 % intervals held only {held}")
        return Answer(
            question, rate, seconds, offers, purchases, joules, self.nearest(target), self._error(target),
            work.memory_bytes(target["batch_size"], question.precision),
            work.largest_batches([memory] if memory else networks.MEMORIES, question.precision), notes,
        )  # fmt: skip

    def nearest(self, target: dict) -> pandas.DataFrame:
        """Return the published or measured rates nearest to a target: same network and product, then similar chips."""
        lines = self.lines
        distances = numpy.hypot(*(lines[name].to_numpy(float) - target[name] for name in ("peak", "bandwidth")))
        for column, weight in (("network", 3.0), ("family", 1.0), ("product", 2.0)):
            distances += weight * (lines[column] != target[column])
        order = lines.assign(distance=distances).sort_values("distance", kind="stable").head(NEAREST)
        return order[["chip", "work", "precision", "rate", "sequence_length", "source"]].reset_index(drop=True)

    def check_operations(self, name: str, flops_per_sample: float) -> None:
        """Check that a work's operations for an image are within a factor BEYOND of those on record.

        Raises:
            Unknown: they are not, or were not counted.
        """
        least, most = self._known["operations"].values()
        if not least / BEYOND <= flops_per_sample <= most * BEYOND:
            raise Unknown(
                f"{networks.title(name)} takes {wording.number(flops_per_sample)} operations an image; works on record"
                f" take {wording.number(least)} to {wording.number(most)}, too different for a prediction"
            )

    def _work(self, question: Question) -> dict:
        """Return the columns of `rates.work_of` for a question.

        Raises:
            Unknown: no work on record is similar.
        """
        if question.flops_per_sample:
            given = rates.work_of("given", question.image_size)
            self.check_operations("the network given", question.flops_per_sample)
            return given | {"flops_per_sample": question.flops_per_sample}
        if not question.work:
            raise Unknown("no work was given; allowed: a study, a network, or the operations of an image")
        work = networks.describe(question.work, question.image_size, question.sequence_length)
        if work.flops_per_sample is not None:
            self.check_operations(work.name, work.flops_per_sample)
        elif work.name not in self._known["network"]:
            names = sorted(set(networks.table().index) | set(self._known["network"]))
            raise Unknown(f"work {question.work!r}; allowed: {', '.join(names)}, or the operations of an image")
        return rates.work_of(work.name, work.image_size or self._known["sizes"].get(work.name), work.sequence_length)

    def _basis(self, target: dict) -> str:
        product, (network, *size) = target["product"], target["work"].split(", ")
        work = ", ".join([networks.title(network), *size])
        of_chip, of_work = (self._known[name].get(target[name], 0) for name in ("product", "work"))
        known = wording.count(of_chip, "known rate")
        text = f"{known} of {product}" if of_chip else f"the published figures of {product} (no known rate)"
        text += f", and {of_work} of {work}" if of_work else ", and the operations of the work (no known rate)"
        if "fp32_tflops" not in chips.specification(target["chip"]):
            text += (
                "; its fp32 peak was not published and is assumed to be its peak in 16 bits divided by"
                f" {rates.usual_ratio():.2g}, the median of other chips"
            )
        return text

    def _error(self, target: dict) -> str:
        """Return a sentence with the median error and the coverage of such predictions."""
        family, vendor, situation = map(target.get, ("family", "vendor", "situation"))
        alike = self.published[self.published["situation"].eq(situation)]
        of_family = alike[alike["family"].eq(family)]
        groups = {f"{vendor}, {family}": of_family[of_family["vendor"].eq(vendor)], family: of_family}
        enough = ((words, own) for words, own in groups.items() if len(own) >= model.FEWEST)
        words, own = next(enough, ("all makers", alike))
        measures = model.error_measures(own)
        return (
            f"the median error of such predictions is {measures['median_error']:.0%} ({len(own)} rates; {situation},"
            f" {words}), and {measures['coverage']:.0%} of their 90 % intervals hold"
        )


@functools.cache
def of_the_record() -> Forecaster:
    """Return the forecaster that learns from the record alone; it learns once in a process."""
    return Forecaster()


def scaling(figures: pandas.DataFrame, count: int) -> tuple[float, float]:
    """Return the logarithm of the speed-up of several devices over one, and the half-width of its 90 % interval.

    Each doubling of devices has the same efficiency: the median in publications that print rates of one device and of
    several. The interval covers 90 % of these cases, each predicted without its chip.

    Args:
        figures: of the record, with their products.
        count: number of devices.

    Raises:
        Unknown: no publication on record compares so many devices with one.
    """
    if count == 1:
        return 0.0, 0.0
    if not 1 < count <= MOST:
        raise Unknown(f"{count} devices; allowed: 1 to {MOST}, as many as publications on record compare with one")
    known = figures[figures["rate"].gt(0) & figures["refused"].eq("") & figures["device_count"].le(MOST)]
    best = known.groupby([*SAME, "device_count"], dropna=False)["rate"].max().reset_index()
    one = best[best["device_count"] == 1].drop(columns="device_count").rename(columns={"rate": "one"})
    more = best[best["device_count"].ge(2)].merge(one, on=SAME)
    kept = numpy.log((more["rate"] / (more["one"] * more["device_count"])).astype(float))
    kept /= numpy.log2(more["device_count"].astype(int))
    off = [(own - kept.drop(own.index).median()).abs() for _, own in kept.groupby(more["product"])]
    doublings, off = math.log2(count), numpy.sort(pandas.concat(off).to_numpy())
    width = off[min(len(off), math.ceil(model.LEVEL * (len(off) + 1))) - 1] * doublings
    return math.log(count) + float(kept.median()) * doublings, float(width)


def _setting(line: dict) -> tuple:
    """Return what the energy and the rate of one training have in common."""
    details = json.loads(line["settings"])
    return line["article"], line["chip"], line["network"], details.get("power_limit_watts"), details.get("batch_size")
