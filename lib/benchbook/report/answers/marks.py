"""Tasks, such as 90 epochs of ResNet-50, and marks: the time, money and energy of one machine for one task."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from benchbook.judging import wording
from benchbook.machine import layout
from benchbook.record import chips, estimate
from benchbook.rows import networks

SOURCES = MEASURED, PUBLISHED, PREDICTED = "measured", "published", "predicted"
KINDS = ("Apple", "NVIDIA", "Google TPU", "CPU", "other")
CPUS = ("Xeon", "Epyc", "EPYC", "Core i", "Threadripper", "Ryzen")  # words in names of CPUs
FAMILIES = {"fp32": "fp32", "half": "16 bits"}  # of precisions; TF32 counts as fp32, as in most publications
UNKNOWN = "unknown"  # the family of a mark whose precision was not stated
NOT_MEASURED = "not measured for this work on this chip"
MINUTE = 60.0
IMAGENET = 1_281_167


@dataclass(frozen=True)
class Task:
    """A training task that the report compares machines by.

    Attributes:
        key: its name in addresses and tables.
        short: its name for the reader.
        does: completes a sentence after "takes ... to".
        note: what is counted, for the reader.
        images: number of images or sequences to train on, in all epochs together.
        study: the study whose headline has the measured and published times; empty for none.
        epoch: number of images in an epoch of the study's article.
        image_size: pixels of a side; rows with other sizes are other work.
        work: the study or network to predict.
        points: the study whose measured points of `work`, or of the user's networks, have the times; empty for none.
        batch_size: of the prediction; None: the usual one.
    """

    key: str
    short: str
    does: str
    note: str
    images: float
    study: str = ""
    epoch: float | None = None
    image_size: float | None = None
    work: str = ""
    points: str = ""
    batch_size: float | None = None

    @property
    def address(self) -> str:
        """Return the path of its page in the report's folder; the first task has the start page."""
        return "index.html" if self.key == TASKS[0].key else f"{self.key}.html"

    @property
    def epochs(self) -> float:
        """Return the number of epochs; 1 if the task is not defined by epochs."""
        return self.images / self.epoch if self.epoch and self.images > self.epoch else 1.0


TASKS = (
    Task(
        "resnet50",
        "ResNet-50, 90 epochs",
        "train ResNet-50 for 90 epochs",
        "90 epochs of ImageNet, each with 1,281,167 images of 224 x 224 pixels, at the training rate, without tests."
        " Published rates were measured with synthetic or real images; each source states which.",
        90 * IMAGENET,
        study="resnet50_cost",
        epoch=IMAGENET,
        image_size=224,
        work="resnet50_cost",
    ),
    Task(
        "resnet50-accuracy",
        "ResNet-50 to 75.9 %",
        "train ResNet-50 to 75.9 % accuracy",
        "Published times from the first step until 75.9 % of ImageNet's test images are classified correctly. Machine,"
        " batch size and recipe differ between sources. Predictions are for one device in 16 bits.",
        1,
        image_size=224,
        work="resnet50_cost",
    ),
    Task(
        "simclr",
        "SimCLR, 200 epochs",
        "train SimCLR for 200 epochs",
        "A ResNet-18 learns from two views of each of 50,000 CIFAR-10 images, without labels. The time includes a"
        " nearest-neighbour test, as in the article.",
        200 * 50_000,
        study="simclr_epochs",
        epoch=50_000,
        image_size=32,
        work="simclr_epochs",
    ),
    Task(
        "mnist",
        "MNIST, one epoch",
        "train one epoch of MNIST",
        "A small convolutional network trains on 60,000 images of handwritten digits. The time includes set-up and a"
        " test, as in the article.",
        60_000,
        study="mnist_speedup",
        epoch=60_000,
        work="mnist_speedup",
    ),
    Task(
        "mobilenetv2",
        "MobileNetV2, a million images",
        "train MobileNetV2 on a million images",
        "The last layer of MobileNetV2 trains on images of 128 x 128 pixels. Published times include validation.",
        1e6,
        study="mobilenetv2_energy",
        epoch=50_000,
        image_size=128,
        work="mobilenetv2_energy",
    ),
    Task(
        "segmentation",
        "Segmentation, 100,000 images",
        "train a U-Net on 100,000 images",
        "A U-Net trains on 100,000 grey images of 512 x 512 pixels, as in the article, whose own network was not"
        " released.",
        100_000,
        study="segmentation_scaling",
        image_size=512,
        work="segmentation_scaling",
    ),
    Task(
        "gpt2",
        "GPT-2 small, a billion tokens",
        "train GPT-2 small on a billion tokens",
        "GPT-2 small (124 million weights) trains on a billion tokens, in sequences of 1,024, at the training rate,"
        " without tests.",
        1e9 / 1024,
        work="gpt2_124m",
        points="gpt_tokens",
    ),
    Task(
        "nanogpt",
        "nanoGPT to 1.47",
        "train nanoGPT's character model to a loss of 1.47",
        "5,000 steps of 64 sequences of 256 characters, at the training rate, without tests. nanoGPT's README reports"
        " a validation loss of 1.4697 after these steps.",
        5000 * 64,
        work="nanogpt_char",
        points="gpt_tokens",
        batch_size=64,
    ),
    Task(
        "own",
        "Your own network",
        "train your network",
        "Predicted from the public record, for a convolutional network in PyTorch with 64 images a step. Choose a"
        " network, or enter the operations of a training step for one image (2 for each multiply-add, forward and"
        " backward together). For a language model, choose a task with GPT in its name.",
        1e6,
        work="given",
        points="your_network",
    ),
)
GPT2_WEIGHTS, GPT2_TOKENS = 124e6, 128  # a training step takes 6 operations per weight and token
# Operations of a training step for one image (or sequence) in well-known networks.
PRESETS = {
    "ResNet-18": networks.describe("resnet18").flops_per_sample,
    "ResNet-50": networks.describe("resnet50").flops_per_sample,
    "ViT-B/16": networks.describe("vit_b_16").flops_per_sample,
    "U-Net, 512 x 512 pixels": networks.describe("unet_triangles").flops_per_sample,
    f"GPT-2 small, {GPT2_TOKENS} tokens": 6 * GPT2_WEIGHTS * GPT2_TOKENS,
}
BY_KEY = {each.key: each for each in TASKS}


@dataclass(frozen=True)
class Mark:
    """The time, money and energy that one machine takes for one task.

    Attributes:
        task: the task's key.
        place: the machine's id, or the chip and the number of devices; all marks of a place are on one page.
        name: the machine's name for people, with device and variant; marks with one name are one row of a table.
        machine: the machine's name without device and variant.
        kind: one of KINDS.
        source: measured, published or predicted.
        family: of precisions: fp32, half, or `unknown`.
        seconds: for the whole task.
        low, high: bounds of the seconds; None if they rest on one published number.
        bounds: the kind of bounds, in words; empty without bounds.
        based_on: the number of runs, kernels, windows, figures or publications, in a few words.
        difference: how the work differs from the task's; such a mark is never compared. Empty if it is the same work.
        here: whether this machine measured it.
        joules: for the whole task; None if no energy of this work on this chip is known.
        estimated: whether the joules come from other trainings of the same network.
        energy_note: how the joules were measured or estimated, and what they leave out.
        chip: the canonical name; a chip that is not in the list has its own name, and an unknown chip is empty.
        count: number of devices that train together.
        memory_gb: of one device; None if unknown.
        rent: US dollars an hour for all devices together; None without a price.
        rent_note: the provider, date and span of the offers.
        marketplace: whether only marketplaces, where private owners rent out computers, offer the chip.
        purchase: US dollars; None without a price.
        purchase_note: the date of the price.
        settings: further settings of the point, by name.
        sources: citations, or the folder of the rows.
        stand_in: the data set in place of the article's, such as `on drawn shapes`; else empty.
        counted: operations of a training step for one image of the measured user's network; else None.
        curve: seconds for a million images of the user's network, with bounds, at each of `from_record.OPERATIONS`.
    """

    task: str
    place: str
    name: str
    machine: str
    kind: str
    source: str
    family: str
    seconds: float
    low: float | None
    high: float | None
    bounds: str
    based_on: str
    difference: str = ""
    here: bool = False
    joules: float | None = None
    estimated: bool = False
    energy_note: str = NOT_MEASURED
    chip: str = ""
    count: int = 1
    memory_gb: float | None = None
    rent: float | None = None
    rent_note: str = ""
    marketplace: bool = False
    purchase: float | None = None
    purchase_note: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    stand_in: str = ""
    counted: float | None = None
    curve: Mapping[str, list[float]] = field(default_factory=dict)

    @property
    def page(self) -> str:
        """Return the path of its machine's page in the report's folder."""
        return f"machines/{slug(self.place)}.html"

    @property
    def anchor(self) -> str:
        """Return its id on its pages, made from task, machine, device, variant, precision and source."""
        parts = [self.task, self.place, self.name, self.family, self.settings.get("precision", ""), self.source[:4]]
        return slug(" ".join(parts))

    @property
    def kwh(self) -> float | None:
        """Return the energy for the task in kilowatt-hours; None if unknown."""
        return None if self.joules is None else self.joules / estimate.JOULES_PER_KWH

    @property
    def rented(self) -> float | None:
        """Return the rent for the task in US dollars; None without a price."""
        return None if self.rent is None else estimate.rent(self.seconds, self.rent)

    @property
    def fits(self) -> str:
        """Return the largest batch that fits in the memory of one device, in words; empty if unknown."""
        network = networks.describe(BY_KEY[self.task].work)
        is_known = self.memory_gb and self.family in FAMILIES
        unit = "sequence" if network.sequence_length else "image"
        return "".join(
            f"up to {wording.count(batch, unit)} a step in {size:g} GB"
            if batch
            else f"no: a step of one {unit} takes more than {size:g} GB"
            for size, batch in network.largest_batches([self.memory_gb] if is_known else [], self.family).items()
        )

    @property
    def basis(self) -> str:
        """Return its source and basis in a few words."""
        elsewhere = " on another computer" if self.source == MEASURED and not self.here else ""
        ends = [wording.duration(end) for end in (self.low, self.high) if end]
        bounds = f"; {self.bounds}: {' to '.join(ends)}" if len(set(ends)) > 1 else ""
        return f"{self.source}{elsewhere}: {self.based_on}{bounds}"


def slug(text: str) -> str:
    """Return a plain name for files and addresses; different texts have different names."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if plain == text and layout.is_name(plain):
        return plain
    return f"{plain[:80]}-{sha256(text.encode()).hexdigest()[:6]}".lstrip("-")


def kind_of(device: str | None, chip: str) -> str:
    """Return which of KINDS a device is; all CPUs are one kind."""
    makers = {"Apple": "Apple", "NVIDIA": "NVIDIA", "Google": "Google TPU"}
    is_cpu = device == "cpu" or any(word in chip for word in CPUS)
    vendor = chips.specification(chip)["vendor"] if chips.listed(chip) else chip.partition(" ")[0]
    return "CPU" if is_cpu else makers.get(vendor, "other")
