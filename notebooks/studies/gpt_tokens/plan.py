"""The networks' shapes, nanoGPT's protocol and a point's choices, the same for every framework.

Source: https://github.com/karpathy/nanoGPT at 3adf61e: train.py,
config/train_shakespeare_char.py, and the README for the small network; GPT-2's shape is from
https://cdn.openai.com/better-language-models/language_models.pdf.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy
from pydantic import Field

from benchbook.datasets import SYNTHETIC, Text
from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings, Workload
from benchbook.machine.precisions import PRECISIONS
from benchbook.measuring import tuned
from benchbook.studies.experiments.parameters import BUDGET, AllowEmbedded, SearchSeconds, words_of
from benchbook.studies.experiments.plan import Inputs, StudyPlan
from benchbook.studies.experiments.process import Process

WEIGHT_DECAY, MOST_NORM = 0.1, 1.0
MOST_TEST_SEQUENCES = 64  # in a test batch
SWITCHES = (
    "fused_attention",
    "fused",
    "compiled",
    "padded",
    "graphs",
)  # of `Settings`, for transformers
FOR_IMAGES = {"channels_last", "autotuned"}


@dataclass(frozen=True)
class Shape:
    """A network's sizes, and the constants of its training.

    Attributes:
        layers, heads, width, context: blocks, heads per block, embedding size, and the most
        tokens of a sequence.
        vocabulary: number of different tokens; 0: those of the text.
        has_biases: in dense layers and layer norms.
        dropout: share dropped from embeddings, attention and each branch.
        peak_rate: the highest learning rate; the lowest is a tenth of it.
        warm_up, steps: the learning rate rises until step `warm_up` and falls until `steps`.
        beta2: decay of Adam's mean of squares.
    """

    layers: int
    heads: int
    width: int
    context: int
    vocabulary: int = 0
    has_biases: bool = False
    dropout: float = 0.0
    peak_rate: float = 1e-3
    warm_up: int = 100
    steps: int = 5000
    beta2: float = 0.99


GPT2 = Shape(
    layers=12, heads=12, width=768, context=1024, vocabulary=50_257, has_biases=True,
    peak_rate=6e-4, warm_up=2000, steps=600_000, beta2=0.95,
)  # fmt: skip
SHAPES = {
    "nanogpt_char": Shape(layers=6, heads=6, width=384, context=256, dropout=0.2),
    "nanogpt_char_small": Shape(layers=4, heads=4, width=128, context=64, steps=2000),
    "gpt2_124m": GPT2,
    "gpt2_355m": replace(GPT2, layers=24, heads=16, width=1024),
}


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices. Training uses AdamW with weight decay on matrices only, and clips
    gradients to norm 1.

    `reference` gathers each batch on the host, as nanoGPT does, and computes explicit attention
    in float32. `controlled` takes the same batches in the same order. The sequences of a batch
    begin at places in the text that are drawn with replacement.

    Attributes:
        dataset: from `load`; None: train on one batch of random tokens on the device.
        steps_per_epoch: steps between two tests, which count as an epoch.
    """

    MODEL = "nanogpt_char_small"
    FRAMEWORKS = ("torch", "mlx")
    DATASETS = ("tinyshakespeare", "excerpt", SYNTHETIC)
    FRAMEWORK = "torch"
    VARIANTS = ("reference", "controlled", "tuned")
    WITHOUT = ("num_workers",)
    FIXED = (*StudyPlan.FIXED, "ladder")
    EXAMPLE = {"dataset": "excerpt", "samples_per_window": 240, "num_test_sequences": 40}
    SMALLEST = {
        "variant": "controlled",
        "sequence_length": 16,
        "steps_per_epoch": 2,
        "parity_batch_size": 8,
    }
    workers = 0  # nanoGPT's batches are made by the training thread
    image_size = None

    dataset: Text | None = field(kw_only=False)
    model: Annotated[Literal[*SHAPES], Field(description="the network's shape")] = MODEL
    batch_size: Annotated[int, Field(ge=1, description="sequences a step")] = 12
    sequence_length: Annotated[
        int, Field(ge=0, description="tokens of a sequence; 0: the model's context")
    ] = 0
    lora_rank: Annotated[
        int,
        Field(
            ge=0,
            description="above 0: all weights are frozen, and adapters of this rank are trained",
        ),
    ] = 0
    ladder: Annotated[
        str,
        words_of(*PRECISIONS, *SWITCHES),
        Field(description="settings of the computation, controlled"),
    ] = ""
    evaluate_each_epoch: Annotated[
        bool,
        Field(
            description="test after every window, each being an epoch; else once, at a repeat's end"
        ),
        BUDGET,
    ] = False
    num_test_sequences: Annotated[
        int, Field(ge=0, description="sequences of the test; 0: all"), BUDGET
    ] = 0
    parity_batch_size: int = 2
    search_seconds: SearchSeconds = 120.0
    allow_embedded: AllowEmbedded = True
    steps_per_epoch: int = 250

    @classmethod
    def start(cls, process: Process, data: Text | None) -> Workload:
        """Return the workload of a process's parameters, in the settings of the ladder."""
        return process.build(cls, data, settings=read_settings(process.parameters["ladder"]))

    @classmethod
    def measure(cls, process: Process) -> None:
        """Measure windows, with a ladder after some that alternate with those without it."""
        if process.parameters["ladder"]:
            process.alternate(Settings())
        process.measure()

    def __post_init__(self) -> None:
        super().__post_init__()
        shape, most_tokens = self.shape, self.device.longest_product
        self.require(
            "sequence_length", 0 <= self.sequence_length <= shape.context, f"0 to {shape.context}"
        )
        self.require("lora_rank", 0 <= self.lora_rank <= shape.width, f"0 to {shape.width}")
        # A weight's gradient is a product over all tokens of a step.
        if most_tokens and self.batch_size * self.length > most_tokens:
            reason = (
                f"beyond {most_tokens} tokens a step, {self.device.name} computes wrong products"
            )
            allowed = f"up to {most_tokens // self.length}; {reason}"
            raise NotImplementedError(f"batch_size {self.batch_size}; allowed: {allowed}")
        if (
            self.dataset
            and (shortest := min(len(self.dataset.train), len(self.dataset.test))) <= self.length
        ):
            raise ValueError(
                f"sequence_length {self.length}; allowed with {self.dataset.name}: below {shortest}"
            )
        self.require(
            "dataset",
            self.dataset or shape.vocabulary,
            f"a text ({self.model} takes its vocabulary from it)",
        )

    @classmethod
    def candidates(cls, device: Device) -> list[dict]:
        """Return the changes that a search tries on a device: its precisions, then settings for
        transformers."""
        general = [change for change in tuned.candidates(device) if not FOR_IMAGES & change.keys()]
        precisions = [change for change in general if "precision" in change]
        return [
            *precisions,
            {"fused_attention": True},
            {"padded": True},
            *general[len(precisions) :],
        ]

    @property
    def shape(self) -> Shape:
        """Return the network's sizes."""
        return SHAPES[self.model]

    @property
    def length(self) -> int:
        """Return the number of tokens per sequence."""
        return self.sequence_length or self.shape.context

    @property
    def vocabulary(self) -> int:
        """Return the number of different tokens."""
        return self.shape.vocabulary or len(self.dataset.characters)

    @property
    def num_samples(self) -> int:
        """Return the number of sequences in an epoch."""
        return self.steps_per_epoch * self.batch_size

    def columns(self) -> dict:
        """Return the columns of a row that are the same for every framework."""
        return super().columns() | {"model": self.model, "sequence_length": self.length}

    def rate(self, step: int) -> float:
        """Return a step's learning rate: linear warm-up, then cosine decay to a tenth."""
        shape, lowest = self.shape, self.shape.peak_rate / 10
        if step < shape.warm_up:
            return shape.peak_rate * (step + 1) / (shape.warm_up + 1)
        progress = min(1.0, (step - shape.warm_up) / (shape.steps - shape.warm_up))
        return lowest + (shape.peak_rate - lowest) * (1 + math.cos(math.pi * progress)) / 2

    def order(self, epoch: int) -> numpy.ndarray:
        """Return the starts of an epoch's sequences in the text, shape (steps, n)."""
        random = numpy.random.default_rng([self.seed, epoch])
        return random.integers(
            len(self.dataset.train) - self.length, size=(self.steps_per_epoch, self.batch_size)
        )

    def test_order(self) -> list[numpy.ndarray]:
        """Return the starts of the sequences of each test batch; together they cover the test
        text once."""
        starts = numpy.arange(0, len(self.dataset.test) - self.length, self.length)
        starts = starts[: self.num_test_sequences or None]
        return numpy.split(starts, range(MOST_TEST_SEQUENCES, len(starts), MOST_TEST_SEQUENCES))

    def inputs(self, reside: Callable, take: Callable) -> Inputs:
        """Return functions to an epoch's training batches and to the test batches.

        Args:
            reside: copies tokens from the host to the device.
            take: from a text, resident or not, and the starts of sequences to sequences of
            `length` + 1 tokens.
        """
        if self.dataset is None:
            random = numpy.random.default_rng([self.seed, 0])
            tokens = random.integers(self.vocabulary, size=(self.batch_size, self.length + 1))
            return self.repeated((reside(tokens[:, :-1]), reside(tokens[:, 1:])))
        train, test = self.dataset.train, self.dataset.test
        if self.data_resident:
            train, test = reside(train), reside(test)

        def batches(text: Any, order: Iterable[numpy.ndarray]) -> Iterator[tuple]:
            for starts in order:
                sequences = take(text, starts)
                yield sequences[:, :-1], sequences[:, 1:]

        return lambda epoch: batches(train, self.order(epoch)), lambda: batches(
            test, self.test_order()
        )


def read_settings(text: str) -> Settings:
    """Return settings from words separated by blanks: `SWITCHES`, and precisions, the last of
    which is used."""
    words = text.split()
    precision = ["fp32", *(word for word in words if word in PRECISIONS)][-1]
    return Settings(precision, **{word: True for word in words if word in SWITCHES})
