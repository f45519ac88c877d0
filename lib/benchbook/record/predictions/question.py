"""What is asked of the record, and what it answers."""

from dataclasses import dataclass, field

import pandas


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        chip: by any of its names.
        work: a study or a network; empty where its operations are given.
        precision: one of `records.PRECISIONS`.
        flops_per_sample: operations of a training step for an image; None: those of the work.
        image_size: pixels of a side; None: the size at which the work's operations were counted.
        batch_size: of one device; None: 64.
        count: devices.
        images: to train on.
    """

    chip: str
    work: str = ""
    precision: str = "fp32"
    flops_per_sample: float | None = None
    image_size: float | None = None
    batch_size: float | None = None
    count: int = 1
    images: float = 1_281_167.0


@dataclass(frozen=True)
class Range:
    """A value with the bounds of its 90 % interval and what it rests on."""

    value: float
    low: float
    high: float
    basis: str


@dataclass(frozen=True)
class Answer:
    """What a chip would take.

    Attributes:
        question: as asked, the chip by its one name.
        rate: images a second, of all devices together.
        seconds: for the images asked about.
        rented: a line for each price: its offer, and dollars, low, high for the images.
        bought: a line for each price, and the hours after which it has cost as much as the median offer.
        joules_per_image: None where the record has no measured power of the chip.
        nearest: what was published nearest to it: chip, work, precision, rate, source.
        error: the median error of such predictions, on how many pairs.
    """

    question: Question
    rate: Range
    seconds: Range
    rented: pandas.DataFrame
    bought: pandas.DataFrame
    joules_per_image: Range | None
    nearest: pandas.DataFrame
    error: str
    notes: list[str] = field(default_factory=list)
