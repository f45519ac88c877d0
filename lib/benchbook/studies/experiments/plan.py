"""The base of the studies' plans: a point's choices are checked, and a workload is built from
them."""

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, ClassVar

import numpy
from pydantic import Field

from benchbook import datasets
from benchbook.datasets import SYNTHETIC, Dataset
from benchbook.frameworks import batches
from benchbook.frameworks.devices import Device
from benchbook.frameworks.plain import Plain
from benchbook.frameworks.workload import Settings, Workload
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.rows import records
from benchbook.studies.experiments.parameters import BUDGET
from benchbook.studies.experiments.process import Process

Inputs = tuple[Callable[[int], Iterable], Callable[[], Iterable]]


@dataclass(frozen=True)
class StudyPlan:
    """A point's choices, and how much of it to measure; each study's `Plan` adds its own.
    `build` makes the workload.

    The annotated fields are the study's parameters, see `parameters`; values out of their bounds
    never come here.

    Attributes:
        dataset: what to train on.
        device: where to train, and with which framework.
        variant: `reference` is the article's protocol, `tuned` the fastest settings found on
        this device.
        settings: of the computation; `benchbook.measuring.tuned` finds those of `tuned`.
        network_class: a reader's in place of the study's `Network`; see `make_network`.

    Raises:
        ValueError: choices that do not fit together, or do not fit the data.
        NotImplementedError: the study has no network in the device's framework.
    """

    MODEL: ClassVar[str]
    TASK: ClassVar[tuple[int, str]] = (0, "")  # images of what the study times, and its words
    FRAMEWORKS: ClassVar[tuple[str, ...]]
    FRAMEWORK: ClassVar[str] = "best"  # the default, if there are several
    # Fields of a base class that are no parameters of this study.
    WITHOUT: ClassVar[tuple[str, ...]] = ()
    VARIANTS: ClassVar[tuple[str, ...]] = ("reference", "tuned")
    DATASETS: ClassVar[tuple[str, ...]] = ("cifar10", "shapes", "image_folder")
    find: ClassVar[Callable] = staticmethod(datasets.load)  # returns one of them by name
    EXAMPLE: ClassVar[
        dict
    ] = {}  # parameters of the notebook's executed example, about a minute on a CPU
    SMALLEST: ClassVar[
        dict
    ] = {}  # choices of the smallest workload, which tests of all studies build
    FIXED: ClassVar[tuple[str, ...]] = (
        "device",
        "framework",
        "dataset",
    )  # parameters that a workload does not take, so that `Experiment.explore` refuses them
    PLAIN_STEP: ClassVar[bool] = (
        False  # whether torch takes `TorchWorkload.plain_step`, without autocast
    )
    shuffles: ClassVar[bool] = True  # whether the seed gives each epoch another order

    dataset: Dataset
    device: Device
    variant: str = "reference"
    _: KW_ONLY
    batch_size: Annotated[int, Field(ge=1, description="images a step")] = 64
    data_resident: Annotated[
        bool,
        Field(
            description="keep all images on the device, so that no loader runs; not with reference"
        ),
    ] = False
    num_workers: Annotated[
        int, Field(ge=0, description="threads or processes that prepare batches ahead")
    ] = 1
    num_processes: Annotated[
        int,
        Field(ge=1, description="most fresh processes that measure windows, one after the other"),
        BUDGET,
    ] = 6
    fewest_processes: Annotated[
        int, Field(ge=1, description="fewest of them; an interval needs two"), BUDGET
    ] = 2
    processes_part: Annotated[
        float,
        Field(ge=0, description="known: the processes' part of half the interval is at most this"),
        BUDGET,
    ] = 0.09
    num_repeats: Annotated[
        int,
        Field(ge=1, description="repeats of the measurement, each from the same initial weights"),
        BUDGET,
    ] = 1
    num_windows: Annotated[int, Field(ge=1, description="timed windows in a repeat"), BUDGET] = 1
    samples_per_window: Annotated[
        int, Field(ge=0, description="images in a window; 0: one epoch"), BUDGET
    ] = 0
    window_seconds: Annotated[
        float,
        Field(ge=0, description="least length of a window; 0: samples_per_window decides"),
        BUDGET,
    ] = 0.0
    num_warmup_steps: Annotated[
        int, Field(ge=0, description="steps before the clock starts; undone afterwards"), BUDGET
    ] = 10
    num_parity_steps: Annotated[
        int, Field(ge=0, description="steps compared with the CPU in float64; 0: none"), BUDGET
    ] = 3
    parity_batch_size: Annotated[
        int, Field(ge=1, description="most samples of a compared step"), BUDGET
    ] = 64
    seed: Annotated[
        int,
        Field(ge=0, description="of weights, dropout, data order and other random numbers"),
        BUDGET,
    ] = 1
    try_seconds: Annotated[
        float,
        Field(ge=0, description="how long the notebook's own loop trains; 0 in `benchbook study`"),
        BUDGET,
    ] = 3.0
    explore: Annotated[
        bool,
        Field(description="whether the last cell tries other settings; false in `benchbook study`"),
        BUDGET,
    ] = True
    settings: Settings = field(default_factory=Settings)
    network_class: type | None = None

    def __post_init__(self) -> None:
        may_reside = self.variant != "reference" or not self.data_resident
        self.require(
            "data_resident",
            may_reside,
            "False with variant reference (the article loads its batches)",
        )
        if self.device.framework not in self.FRAMEWORKS:
            study, allowed = self.__module__.split(".")[-2], ", ".join(self.FRAMEWORKS)
            raise NotImplementedError(f"{self.device.framework} with {study}; allowed: {allowed}")

    def require(self, name: str, right: bool, allowed: str) -> None:
        """Raise ValueError for the value of a choice, unless it is right."""
        if not right:
            raise ValueError(f"{name} {getattr(self, name)!r}; allowed: {allowed}")

    @classmethod
    def build(cls, *values: Any, **choices: Any) -> Workload:
        """Return the workload of these choices. Only the device's framework is imported.

        The reference of a reader's network is a copy of it in float64.

        Args:
            values, choices: of the plan's fields.

        Raises:
            ValueError: the framework, the variant or the study takes no other network.
        """
        plan = cls(*values, **choices)
        if plan.network_class:
            given = f"network {plan.network_class.__name__} with {plan.device.framework}"
            if "torch" not in cls.FRAMEWORKS:
                raise ValueError(f"{given}; allowed: none, since this study's networks are Keras's")
            if plan.device.framework != "torch" or plan.variant == "tuned":
                allowed = "framework torch, variants reference and controlled"
                raise ValueError(f"{given}, {plan.variant}; allowed: {allowed}")
        workload = cls._network(plan.device.framework).build(plan)
        if plan.network_class:
            from benchbook.frameworks.torch.training import adopt

            workload.columns = {
                name: value for name, value in workload.columns.items() if name != "parameters"
            } | {"model": records.YOURS}
            adopt(workload)
        return workload

    def make_network(self, published: Callable[[], Any]) -> Any:
        """Return the study's network, or the reader's, whose `__init__` takes the plan or nothing.

        Raises:
            ValueError: it takes something else.
        """
        own = self.network_class
        if own is None:
            return published()
        taken = inspect.signature(own)
        kinds = {part.kind for part in taken.parameters.values()}
        has_named = kinds - {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        given = (self,) if has_named else ()
        try:
            taken.bind(*given)
        except TypeError:
            allowed = "__init__(self, plan) or __init__(self)"
            raise ValueError(f"{own.__name__}{taken}; allowed: {allowed}") from None
        return own(*given)

    def count(self, counted: Callable[[], float]) -> float | None:
        """Return the operations that a function counts; None if it cannot count a reader's
        network."""
        try:
            return counted()
        except Exception:
            if self.network_class is None:
                raise
            return None

    @classmethod
    def candidates(cls, device: Device) -> list[dict] | None:
        """Return the changes that a search tries on a device; None: all of
        `measuring.tuned.candidates`."""
        return None

    @classmethod
    def load(cls, process: Process) -> Any:
        """Return the data that a process's parameters name, with at most `num_test_images` test
        images."""
        data = process.load(cls.find, process.parameters["dataset"])
        return (
            data.with_tests(process.parameters.get("num_test_images", 0))
            if isinstance(data, Dataset)
            else data
        )

    @classmethod
    def start(cls, process: Process, data: Any) -> Workload:
        """Return the workload of a process's parameters, after its first step."""
        return process.build(cls, data)

    @classmethod
    def measure(cls, process: Process) -> None:
        """Measure the windows of a process, and in the first one what else the study measures."""
        process.measure()

    @classmethod
    def _network(cls, framework: str) -> Any:
        package = cls.__module__.rpartition(".")[0]
        return importlib.import_module(f"{package}.network_{FRAMEWORKS[framework].library}")

    def plain_in_torch(self) -> Plain:
        """Return the plain version in torch, for a framework without float64."""
        return self._network("torch").plain(self)

    def common(
        self, train: Callable[[int], Iterable], test: Callable[[], Iterable], **counted: float
    ) -> dict:
        """Return the arguments that every framework's workload takes: choices, `Inputs`, and
        columns with counts."""
        columns = self.columns() | counted
        inputs = {"train_batches": train, "test_batches": test, "columns": columns}
        return {
            "device": self.device,
            "batch_size": self.batch_size,
            "settings": self.settings,
        } | inputs

    @property
    def image_size(self) -> int:
        """Return the side of the network's images in pixels, here the data set's."""
        return self.dataset.train_images.shape[1]

    @property
    def workers(self) -> int:
        """Return the number of workers that prepare batches."""
        return 0 if self.data_resident else self.num_workers

    @property
    def num_samples(self) -> int:
        """Return the number of samples in an epoch."""
        return self.dataset.num_samples

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self.order(0))

    def columns(self) -> dict:
        """Return the columns of a row that are the same for every framework."""
        return {
            "model": self.MODEL,
            "dataset": self.dataset.name if self.dataset else SYNTHETIC,
            "dataset_samples": self.num_samples if self.dataset else None,
            "image_size": self.image_size,
            "num_workers": self.workers,
        }

    def order(self, epoch: int) -> list[numpy.ndarray]:
        """Return the indices of each batch of an epoch; images left over at the end are dropped."""
        seed = self.seed if self.shuffles else None
        return batches.full_batches(self.num_samples, self.batch_size, seed, epoch)

    def repeated(self, batch: tuple) -> Inputs:
        """Return `Inputs` that repeat one batch: `steps_per_epoch` times for training, once for
        the test."""
        return lambda epoch: itertools.repeat(batch, self.steps_per_epoch), lambda: [batch]

    def inputs(self, reside: Callable, load: Callable, test_batch_size: int) -> Inputs:
        """Return functions to an epoch's training batches and to the test batches.

        Args:
            reside: from all images and labels to an object that keeps them on the device and has
            `batches(order)`.
            load: from the images and labels of a batch on the host to the batch; threads call it.
            test_batch_size: images per test batch.
        """
        data = self.dataset
        test_order = batches.batch_indices(len(data.test_labels), test_batch_size)
        if self.data_resident:
            train = reside(data.train_images, data.train_labels)
            test = reside(data.test_images, data.test_labels)
            return lambda epoch: train.batches(self.order(epoch)), lambda: test.batches(test_order)

        def loaded(
            order: list[numpy.ndarray], images: numpy.ndarray, labels: numpy.ndarray
        ) -> Iterable:
            return batches.prefetch(
                order, lambda indices: load(images[indices], labels[indices]), self.workers
            )

        return (
            lambda epoch: loaded(self.order(epoch), data.train_images, data.train_labels),
            lambda: loaded(test_order, data.test_images, data.test_labels),
        )
