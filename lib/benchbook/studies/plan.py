"""The base of all studies' plans: a point's choices, checked, and the workload built from them."""

import importlib.util
import itertools
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from types import ModuleType
from typing import Any, ClassVar

import numpy

from benchbook import studies
from benchbook.frameworks import batches
from benchbook.frameworks.devices import Device
from benchbook.frameworks.plain import Plain
from benchbook.frameworks.workload import Settings, Workload
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.studies.datasets import SYNTHETIC, Dataset

Inputs = tuple[Callable[[int], Iterable], Callable[[], Iterable]]


@dataclass(frozen=True)
class StudyPlan:
    """A point's choices; each study's `Plan` adds its own. `build` makes the workload.

    Attributes:
        dataset: what to train on.
        device: where to train, and with which framework.
        variant: `reference` is the article's protocol, `tuned` the fastest that the device can.
        batch_size: images a step.
        data_resident: not with `reference`: keep all images on the device, so that nothing is loaded.
        num_workers: threads or processes that prepare batches ahead (0: the training thread itself).
        parity_batch_size: images of a step that are repeated in float64, which is slow; of a smaller step all.
        seed: of weights, dropout and data order.
        settings: how the network is computed, for `tuned`; found by `benchbook.measuring.tuned`.

    Raises:
        ValueError: a choice that makes no sense.
        NotImplementedError: a framework that the study is not written in.
    """

    MODEL: ClassVar[str]
    FRAMEWORKS: ClassVar[tuple[str, ...]]
    VARIANTS: ClassVar[tuple[str, ...]] = ("reference", "tuned")
    shuffles: ClassVar[bool] = True  # whether each epoch has an order of its own, by the seed
    SMALLEST: ClassVar[tuple[Callable[[], Any], dict[str, Any]]]  # what makes the data, and the other choices

    dataset: Dataset
    device: Device
    variant: str = "reference"
    _: KW_ONLY
    batch_size: int = 64
    data_resident: bool = False
    num_workers: int = 1
    parity_batch_size: int = 64
    seed: int = 1
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        self.require("variant", self.variant in self.VARIANTS, ", ".join(self.VARIANTS))
        loaded = self.variant != "reference" or not self.data_resident
        self.require("data_resident", loaded, "False with variant reference (the article had loaders)")
        self.check_workers()
        for name in ("batch_size", "parity_batch_size"):
            self.require(name, getattr(self, name) >= 1, "1 or more")
        if self.device.framework not in self.FRAMEWORKS:
            study, allowed = self.__module__.split(".")[-2], ", ".join(self.FRAMEWORKS)
            raise NotImplementedError(f"{self.device.framework} with {study}; allowed: {allowed}")

    def check_workers(self) -> None:
        """Refuse an invalid number of workers."""
        self.require("num_workers", self.num_workers >= 0, "0 or more")

    def require(self, name: str, right: bool, allowed: str) -> None:
        """Refuse the value of a choice, unless it is right."""
        if not right:
            raise ValueError(f"{name} {getattr(self, name)!r}; allowed: {allowed}")

    @classmethod
    def build(cls, *values: Any, **choices: Any) -> Workload:
        """Return the workload of these choices, in the framework of the device; no other is imported."""
        plan = cls(*values, **choices)
        return cls._network(plan.device.framework).build(plan)

    @classmethod
    def smallest(cls, device: Device) -> Workload:
        """Return the smallest workload, which shows whether a device computes correctly."""
        load, choices = cls.SMALLEST
        return cls.build(load(), device, **choices)

    @classmethod
    def candidates(cls, device: Device) -> list[dict] | None:
        """Return what a search tries on a device, see `measuring.tuned.candidates`; None: all that it has."""
        return None

    @classmethod
    def source(cls, device: Device) -> Any:
        """Return the class or function that makes the network in the framework of a device, for a reader to see."""
        module = cls._network(device.framework)
        return getattr(module, "Network", None) or module.make_model

    @classmethod
    def _network(cls, framework: str) -> ModuleType:
        package = cls.__module__.rpartition(".")[0]
        return importlib.import_module(f"{package}.network_{FRAMEWORKS[framework].library}")

    def plain_in_torch(self) -> Plain:
        """Return the plain version in torch, for a framework without float64."""
        return self._network("torch").plain(self)

    def common(self, train: Callable[[int], Iterable], test: Callable[[], Iterable], **counted: float) -> dict:
        """Return what every framework's workload takes as it is: choices, `Inputs`, columns with what was counted."""
        columns = self.columns() | counted
        inputs = {"train_batches": train, "test_batches": test, "columns": columns}
        return {"device": self.device, "batch_size": self.batch_size, "settings": self.settings} | inputs

    @property
    def image_size(self) -> int:
        """Return the side of the network's images in pixels: that of the data set."""
        return self.dataset.train_images.shape[1]

    @property
    def workers(self) -> int:
        """Return the workers that prepare batches."""
        return 0 if self.data_resident else self.num_workers

    @property
    def num_samples(self) -> int:
        """Return the samples of an epoch."""
        return self.dataset.num_samples

    @property
    def steps_per_epoch(self) -> int:
        """Return the batches of an epoch."""
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
        """Return the indices of an epoch's batches; images that do not fill one are left out."""
        seed = self.seed if self.shuffles else None
        return batches.full_batch_indices(self.num_samples, self.batch_size, seed, epoch)

    def repeated(self, batch: tuple) -> Inputs:
        """Return functions to an epoch's training batches and to the test batches, which are all this one."""
        return lambda epoch: itertools.repeat(batch, self.steps_per_epoch), lambda: [batch]

    def inputs(self, reside: Callable, load: Callable, test_batch_size: int) -> Inputs:
        """Return functions to an epoch's training batches and to the test batches.

        Args:
            reside: from all images and labels to what keeps them on the device and has `batches(order)`.
            load: from some images and labels on the host to a batch, for threads.
            test_batch_size: images in a batch of the test.
        """
        data = self.dataset
        test_order = batches.batch_indices(len(data.test_labels), test_batch_size)
        if self.data_resident:
            train, test = reside(data.train_images, data.train_labels), reside(data.test_images, data.test_labels)
            return lambda epoch: train.batches(self.order(epoch)), lambda: test.batches(test_order)

        def loaded(order: list[numpy.ndarray], images: numpy.ndarray, labels: numpy.ndarray) -> Iterable:
            return batches.prefetch(order, lambda indices: load(images[indices], labels[indices]), self.workers)

        return (
            lambda epoch: loaded(self.order(epoch), data.train_images, data.train_labels),
            lambda: loaded(test_order, data.test_images, data.test_labels),
        )


def plans() -> dict[str, type[StudyPlan]]:
    """Return the plan of every study that trains a network of its own, by its name; no framework is imported."""
    folders = [each.name for each in pkgutil.iter_modules(studies.__path__) if each.ispkg]
    modules = {name: f"{studies.__name__}.{name}.plan" for name in folders}
    found = {
        name: importlib.import_module(path).Plan for name, path in modules.items() if importlib.util.find_spec(path)
    }
    return {name: plan for name, plan in found.items() if issubclass(plan, StudyPlan)}
