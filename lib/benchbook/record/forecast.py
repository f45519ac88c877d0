"""What a chip would take for a work: rate, time, dollars and joules, each with an interval and what it rests on."""

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
TOKENS = 1e9  # of a training whose length is not asked for
SEQUENCES = 8.0  # of a batch that is not asked for
NEAREST = 5  # figures shown with an answer
LEAST_COVERAGE = 0.85  # of 90 % intervals: with less an answer says so
BEYOND = 2.0  # times the least or the most operations on record: further than that a work is unlike all of it
NEW = "not on record"  # the publication of a work that nobody published: the user's own
MOST = 8  # devices of a machine: the record's figures of one publication reach no further
PRECISIONS = tuple(name for name in records.PRECISIONS if name != "fp64")  # the record has no rates of fp64
SAME = ["article", "product", "network", "image_size", "computed", "framework", "data"]


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        chip: by any of its names.
        work: a study or a network; empty where its operations are given.
        precision: one of PRECISIONS.
        flops_per_sample: operations of a training step for an image; None: those of the work.
        image_size: pixels of a side; None: the size at which the work's operations were counted.
        sequence_length: tokens; None: the length at which they were counted.
        batch_size: of one device; None: 64 images or 8 sequences.
        count: devices.
        images: to train on, or sequences; None: an epoch of ImageNet, or a billion tokens.
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
    """A value with the bounds of its 90 % interval and what it rests on."""

    value: float
    low: float
    high: float
    basis: str


@dataclass(frozen=True)
class Watts:
    """What one device of a chip drew in trainings: the median, the least and the most; on which boundary, and where."""

    median: float
    least: float
    most: float
    boundary: str
    sources: list[str]

    def __str__(self) -> str:
        """Return it as sentences show it."""
        return f"{self.median:.0f} W a device ({self.least:.0f} to {self.most:.0f})"


@dataclass(frozen=True)
class Answer:
    """What a chip would take.

    Attributes:
        question: as asked, the chip by its one name.
        rate: images or sequences a second, of all devices together.
        seconds: for the images or sequences asked about.
        rented: a line for each price: its offer, and dollars, low, high for the images.
        bought: a line for each price, and the hours after which it has cost as much as the median offer.
        joules_per_image: None where the record has no measured power of the chip in this work.
        nearest: what was published nearest to it: chip, work, precision, rate, sequence_length, source.
        error: the median error of such predictions, on how many pairs.
        memory_bytes: of a step with Adam; None where the activations of the work were not counted.
        largest_batches: the most samples of a step by gigabytes: those of the chip, else of `networks.MEMORIES`.
        notes: what is not known.
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
    """What the record, and what was measured here, say of chips and works that nobody put together."""

    def __init__(self, further: pandas.DataFrame | None = None, of_sequences: bool = False):
        """Learn from the record.

        Args:
            further: more observations, as `rates.of_record` lays them out, such as a machine's own.
            of_sequences: learn from language models as well, to predict these alone: they are few, and would make what
                is predicted of networks of images worse.
        """
        self.figures = articles.read()
        self.figures["product"] = self.figures["chip"].map(chips.product)
        self.further, self.of_sequences = further, of_sequences
        lines = rates.together(rates.of_publications(), further)
        self.model = Model(lines if of_sequences else lines[lines["sequence_length"].isna()])
        # The rates that are of the kind of work that is predicted: images, or sequences.
        self.lines = self.model.observations
        self.lines = self.lines[self.lines["sequence_length"].notna() == of_sequences]

    @functools.cached_property
    def published(self) -> pandas.DataFrame:
        """Return the record's rates as they would have been predicted; see `model.judged`.

        Intervals rest on what was published alone: a machine's own rows are too few, and of one publication.
        """
        if self.further is not None:
            alone = of_the_record()
            return alone.sequences.published if self.of_sequences else alone.published
        return model.judged(self.model, self.lines.index)

    @functools.cached_property
    def _reaches(self) -> dict[str, float]:
        return {situation: model.reach(alike) for situation, alike in self.published.groupby("situation")}

    @functools.cached_property
    def sequences(self) -> "Forecaster":
        """Return what predicts networks of sequences."""
        return Forecaster(self.further, of_sequences=True)

    @functools.cached_property
    def watts(self) -> dict[tuple[str, str], Watts]:
        """Return what a device drew in training, by product and network, where energy and time are both on record.

        Energy over time where the source tells both; else joules an image times the images a second of the same
        setting. The board's own sensor is taken before that of a node, whose host is inside. Other works keep a chip
        more busy, or less.
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
            own = boards if len(boards) else own
            median, least, most = map(float, own["watts"].quantile([0.5, 0.0, 1.0]))
            found[key] = Watts(median, least, most, own["boundary"].iloc[0], sorted(set(own["where"])))
        return found

    @functools.cached_property
    def _known(self) -> dict[str, dict]:
        """Return how many rates of products, works and networks are known; makers measured here, operations, sizes."""
        lines = self.lines
        counts = {name: lines[name].value_counts().to_dict() for name in ("product", "work", "network")}
        counts["operations"] = lines.loc[lines["origin"].eq(RECORD), "flops_per_sample"].agg(["min", "max"]).to_dict()
        counts["here"] = lines.loc[lines["publication"].eq(HERE), "vendor"].value_counts().to_dict()
        counts["plain"] = lines.loc[lines["family"].eq(rates.PLAIN_HALF), "product"].value_counts().to_dict()
        sizes = lines.dropna(subset="image_size").groupby("network")["image_size"].agg(lambda own: own.mode().iloc[0])
        return counts | {"sizes": sizes.to_dict()}

    def rate(self, question: Question) -> Range:
        """Return images or sequences a second of all devices together.

        Raises:
            Unknown: the chip's figures, the work's operations or the count of devices are not known; the message names
                what is missing.
            UnknownChip: no chip goes by that name.
            ValueError: a precision that does not exist.
        """
        (said,) = self.rates([question])
        if isinstance(said, Unknown):
            raise said
        return said

    def rates(self, questions: Sequence[Question]) -> list[Range | Unknown]:
        """Return the rate of each question, see `rate`, or why it is not known; many take little longer than one.

        All are of images, or all of sequences.

        A chip without matrix units is not slower in 16 bits than in fp32, unless it was measured so: both take
        the same units, and 16 bits less memory.
        """
        if not self.of_sequences and any(networks.describe(one.work).sequence_length for one in questions[:1]):
            return self.sequences.rates(questions)
        said, targets = {}, {}
        for place, question in enumerate(questions):
            try:
                targets[place] = self.target(question) | {"growth": scale(self.figures, question.count)}
            except Unknown as reason:
                said[place] = reason
        if targets:
            table = pandas.DataFrame(list(targets.values()))
            table = table.astype(dict.fromkeys(("flops_per_sample", *rates.SIZES), float))
            for (place, target), mean, deviation in zip(targets.items(), *self.model.predict(table), strict=True):
                middle = float(mean) + target["growth"][0]
                far = math.hypot(self._reaches[target["situation"]] * float(deviation), target["growth"][1])
                bounds = [math.exp(log) for log in (middle, middle - far, middle + far)]
                said[place] = self._launched(questions[place], Range(*bounds, self._basis(target)))
        without = {place: target for place, target in targets.items() if target["family"] == rates.PLAIN_HALF}
        plain = [place for place, target in without.items() if target["product"] not in self._known["plain"]]
        fp32 = self.rates([replace(questions[place], precision="fp32") for place in plain]) if plain else []
        for place, other in zip(plain, fp32, strict=True):
            said[place] = max(said[place], other, key=lambda rate: rate.value)
        return [said[place] for place in range(len(questions))]

    @functools.cached_property
    def shortest_step(self) -> float:
        """Return the seconds of the shortest step on record, of one device and a stated batch size."""
        figures = self.figures
        kept = figures[figures["rate"].gt(0) & figures["refused"].eq("") & figures["device_count"].eq(1)]
        kept = kept[~kept["network"].isin(rates.TINY)]
        return float((kept["batch_size"] / kept["rate"]).min())

    def _launched(self, question: Question, rate: Range) -> Range:
        """Return a rate at which no step is shorter than any on record: starting its work takes as long.

        Without a batch size the rate is one at which chips are busy.
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
        """Return the question as an observation without a rate, with the situation in which it is judged."""
        if question.precision not in PRECISIONS:
            raise ValueError(f"precision {question.precision!r}; allowed: {', '.join(PRECISIONS)}")
        figures = rates.chip_figures(question.chip, question.precision, asked=True)
        if question.precision == "tf32" and not chips.has_tf32(figures["chip"]):
            raise Unknown(f"{figures['chip']} has no units for TF32; ask for fp32")
        here = figures["vendor"] in self._known["here"]
        situation = model.PUBLICATION if figures["product"] in self._known["product"] else model.BOTH
        line = rates.line(
            figures, self._work(question), publication=HERE if here else NEW, setting=NEW, framework="pytorch",
            batch_size=question.batch_size or (SEQUENCES if self.of_sequences else None), origin=RECORD,
        )  # fmt: skip
        return line | {"situation": model.ONE_KNOWN if here else situation}

    def ask(self, question: Question, today: datetime.date, hourly: float | None = None, own=None) -> Answer:
        """Return all that can be said to a question.

        Args:
            question: what is asked.
            today: from which the age of prices is counted.
            hourly: US dollars for an hour of one device, the user's own; None: those on record.
            own: further prices, from `articles.prices`.

        Raises:
            Unknown, UnknownChip, ValueError: see `rate`.
        """
        work = networks.describe(question.work, question.image_size, question.sequence_length)
        length = work.sequence_length
        if length and not self.of_sequences:
            return self.sequences.ask(question, today, hourly, own)
        rate, chip = self.rate(question), chips.resolve(question.chip)
        images = question.images or (TOKENS / length if length else IMAGENET)
        question = replace(question, chip=chip, images=images, sequence_length=length)
        bounds = (question.images / value for value in (rate.value, rate.high, rate.low))
        seconds = Range(*bounds, f"{images:g} {'sequences' if length else 'images'} at that rate")
        offers = estimate.rented(chip, today, own)
        if hourly is not None:
            stated = {"chip": chip, "provider": "as stated", "usd_per_hour": hourly, "includes": "as stated"}
            offers = pandas.DataFrame([stated], columns=estimate.OFFERS)
        for name in ("value", "low", "high"):
            hours = getattr(seconds, name) / estimate.SECONDS_PER_HOUR * question.count
            offers["dollars" if name == "value" else name] = offers["usd_per_hour"].astype(float) * hours
        purchases = estimate.bought(chip, today, own)
        rent = float(estimate.usual(offers)["usd_per_hour"].astype(float).median())
        purchases["hours_to_break_even"] = purchases["usd"].astype(float) / rent
        memory = chips.specification(chip).get("memory_gb")
        notes = [] if len(offers) else ["no price by the hour was read for this chip"]
        notes += [] if len(purchases) else ["no purchase price was read for this chip"]
        target = self.target(question)
        joules, family = None, target["family"]
        if drawn := self.watts.get((target["product"], target["network"])):
            basis = f"{drawn} in training, measured on: {drawn.boundary}; {'; '.join(drawn.sources)}"
            bounds = (drawn.median / rate.value, drawn.least / rate.high, drawn.most / rate.low)
            joules = Range(*(question.count * bound for bound in bounds), basis)
        alike = self.published[self.published["family"].eq(family) & self.published["situation"].eq(model.CHIP)]
        share = model.measures(alike)["coverage"]
        if len(alike) >= model.FEWEST and share < LEAST_COVERAGE:
            notes.append(
                f"of {len(alike)} hidden rates in {family}, 90 % intervals held {share:.0%}: take it as a guess"
            )
        return Answer(
            question, rate, seconds, offers, purchases, joules, self.nearest(target), self._error(target),
            work.memory_bytes(target["batch_size"], question.precision),
            work.largest_batches([memory] if memory else networks.MEMORIES, question.precision), notes,
        )  # fmt: skip

    def nearest(self, asked: dict) -> pandas.DataFrame:
        """Return what was published or measured nearest to a target: the same product or work, chips alike first."""
        lines = self.lines
        far = numpy.hypot(*(lines[name].to_numpy(float) - asked[name] for name in ("peak", "bandwidth")))
        far += 3.0 * (lines["network"] != asked["network"]) + 1.0 * (lines["family"] != asked["family"])
        far += 2.0 * (lines["product"] != asked["product"])
        order = lines.assign(far=far).sort_values("far", kind="stable").head(NEAREST)
        return order[["chip", "work", "precision", "rate", "sequence_length", "source"]].reset_index(drop=True)

    def check_operations(self, name: str, flops_per_sample: float) -> None:
        """Refuse a work whose operations for an image are far from those of all works on record.

        Raises:
            Unknown: they are, or nobody counted them.
        """
        least, most = self._known["operations"].values()
        if not least / BEYOND <= flops_per_sample <= most * BEYOND:
            raise Unknown(
                f"{networks.title(name)} takes {wording.number(flops_per_sample)} operations an image; works on record"
                f" take {wording.number(least)} to {wording.number(most)}, too different for a prediction"
            )

    def _work(self, question: Question) -> dict:
        """Return the work of a question as `rates.work_of` has it, if anything on record is like it."""
        if question.flops_per_sample:
            given = rates.work_of("given", question.image_size)
            self.check_operations("the network given", question.flops_per_sample)
            return given | {"flops_per_sample": question.flops_per_sample}
        if not question.work:
            raise Unknown("neither a work nor the operations of an image are given")
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
        text = f"{known} of {product}" if of_chip else f"the printed figures of {product}, without a rate"
        text += f", and {of_work} of {work}" if of_work else ", and the operations of the work, without a rate"
        if "fp32_tflops" not in chips.specification(target["chip"]):
            text += (
                "; its fp32 peak was not published and is taken as its peak in 16 bits divided by"
                f" {rates.usual_ratio():.2g}, the median of other chips"
            )
        return text

    def _error(self, target: dict) -> str:
        """Return how far such predictions are off, and how often their intervals hold, in a sentence."""
        family, vendor, situation = map(target.get, ("family", "vendor", "situation"))
        alike = self.published[self.published["situation"].eq(situation)]
        of_family = alike[alike["family"].eq(family)]
        groups = {f"{vendor}, {family}": of_family[of_family["vendor"].eq(vendor)], family: of_family}
        enough = ((words, own) for words, own in groups.items() if len(own) >= model.FEWEST)
        words, own = next(enough, ("all makers", alike))
        said = model.measures(own)
        return (
            f"such predictions are off by {said['median_error']:.0%} (median of {len(own)}; {situation}, {words}),"
            f" and {said['coverage']:.0%} of their 90 % intervals hold"
        )


@functools.cache
def of_the_record() -> Forecaster:
    """Return what the record alone says; it is learnt once in a process."""
    return Forecaster()


def scale(figures: pandas.DataFrame, count: int) -> tuple[float, float]:
    """Return by how much so many devices are faster than one, in logarithms, and how far that may be off.

    A doubling of devices keeps the median of what it keeps in the publications that print one device and several of it.
    The distance holds 90 % of these cases, chips left out one at a time.

    Args:
        figures: of the record, with their products.
        count: of devices.

    Raises:
        Unknown: a count beyond those of the record.
    """
    if count == 1:
        return 0.0, 0.0
    if not 1 < count <= MOST:
        raise Unknown(f"{count} devices; the record's figures of one publication reach from 1 to {MOST}")
    known = figures[figures["rate"].gt(0) & figures["refused"].eq("") & figures["device_count"].le(MOST)]
    best = known.groupby([*SAME, "device_count"], dropna=False)["rate"].max().reset_index()
    one = best[best["device_count"] == 1].drop(columns="device_count").rename(columns={"rate": "one"})
    more = best[best["device_count"].ge(2)].merge(one, on=SAME)
    kept = numpy.log((more["rate"] / (more["one"] * more["device_count"])).astype(float))
    kept /= numpy.log2(more["device_count"].astype(int))
    off = [(own - kept.drop(own.index).median()).abs() for _, own in kept.groupby(more["product"])]
    doublings, off = math.log2(count), numpy.sort(pandas.concat(off).to_numpy())
    far = off[min(len(off), math.ceil(model.LEVEL * (len(off) + 1))) - 1] * doublings
    return math.log(count) + float(kept.median()) * doublings, float(far)


def _setting(line: dict) -> tuple:
    """Return what a figure of energy and one of a rate have in common where they are of one training."""
    details = json.loads(line["settings"])
    return line["article"], line["chip"], line["network"], details.get("power_limit_watts"), details.get("batch_size")
