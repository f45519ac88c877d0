"""The ResNet-50 protocol: its constants, the schedule, and one point's choices, the same for
every framework.

Source: Elmar Haussmann (RiseML), Comparing Google's TPUv2 against Nvidia's V100 on ResNet-50,
2018-04-26. The network is torchvision's (v1.5) in every framework; Keras's own ResNet50, v1 with
convolution biases, is not used.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy
from pydantic import Field

from benchbook import datasets
from benchbook.datasets import SYNTHETIC, Collection
from benchbook.frameworks import batches
from benchbook.frameworks.devices import Group
from benchbook.frameworks.plain import SGD, Plain, split_target
from benchbook.frameworks.workload import Workload
from benchbook.studies.experiments.parameters import (
    BUDGET,
    AllowEmbedded,
    DataRoot,
    ImageSize,
    Precision,
    SearchSeconds,
    TrialBatchSize,
)
from benchbook.studies.experiments.plan import Inputs, StudyPlan
from benchbook.studies.experiments.process import Process
from benchbook.studies.resnet50_cost import inputs, weights

# Source: https://arxiv.org/abs/1706.02677, and the article's scripts for TPU and GPU.
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4
RATE_BATCH_SIZE = 256  # images a step to which the learning rate belongs
WARM_UP_EPOCHS, DROP_EPOCHS, DROP = 5, (30, 60, 80, 90), 0.1
EPOCHS = 90
BATCH_NORM = {
    "epsilon": 1e-5,
    "momentum": 0.9,
}  # torchvision's values as arguments of Keras, whose defaults differ
IMAGENET_IMAGES, IMAGENET_CLASSES = 1_281_167, 1000
MOST_TEST_IMAGES = 128  # per test batch
# Learning rate of the steps compared with float64. In the warm-up's first steps, the changes are so
# small that float32 rounds them away. At the highest rates, the loss on the few compared images
# swings so far that rounding alone decides its value after ten steps.
PARITY_RATE = 3e-4


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices: Nesterov momentum; weight decay on all but batch norms; a learning rate
    for each step.

    On several devices, JAX's batch norms see the whole batch, and torch's their device's part,
    as the article's did.

    Attributes:
        dataset: from `collect`; None: one synthetic batch on the device, without augmentation.
        device: with JAX, its count is the number of devices that train together, all in this
        process.
        group: with torch, the devices that train together, each in a process of its own, and
        this process's rank.
    """

    MODEL = "resnet50"
    TASK = (1_000_000, "for a million images")
    FRAMEWORKS = ("torch", "tensorflow", "jax")
    DATASETS = (SYNTHETIC, "imagenet", "image_folder", "cifar10", "mnist", "digits", "shapes")
    WITHOUT = ("data_resident",)
    FIXED = (*StudyPlan.FIXED, "device_count", "evaluate_each_epoch")
    EXAMPLE = {"framework": "torch", "batch_size": 8, "image_size": 64, "samples_per_window": 32}
    EXAMPLE |= {"num_warmup_steps": 2, "parity_batch_size": 4}
    SMALLEST = {"variant": "tuned", "image_size": 32, "parity_batch_size": 8}
    find = staticmethod(datasets.collect)

    dataset: Collection | None = field(kw_only=False)
    device_count: Annotated[
        int, Field(ge=1, description="devices that train together; on a CPU, processes")
    ] = 1
    batch_size: Annotated[int, Field(ge=1, description="images a step, all devices together")] = 32
    image_size: ImageSize = 224
    precision: Precision = "fp32"
    num_workers: int = 2
    evaluate_each_epoch: Annotated[
        bool, Field(description="test after every epoch: a curve, whose windows are whole epochs")
    ] = False
    allow_embedded: AllowEmbedded = True
    target_accuracy: Annotated[
        float,
        Field(
            gt=0, le=1, description="time, energy and cost to this accuracy are read off the curve"
        ),
        BUDGET,
    ] = 0.757
    price_per_hour: Annotated[
        float, Field(ge=0, description="US dollars for this machine; 0: unknown"), BUDGET
    ] = 0.0
    electricity_per_kwh: Annotated[
        float, Field(ge=0, description="US dollars; 0: unknown"), BUDGET
    ] = 0.0
    num_windows: int = 3
    samples_per_window: int = 320
    parity_batch_size: int = 8
    search_seconds: SearchSeconds = 120.0
    trial_batch_size: TrialBatchSize = 64
    learning_rate: Annotated[
        float,
        Field(
            gt=0, description="the highest for 256 images a step; it is scaled to the batch size"
        ),
        BUDGET,
    ] = 0.1
    schedule_epochs: Annotated[
        float,
        Field(gt=0, description="epochs for which the learning rate's schedule is planned"),
        BUDGET,
    ] = float(EPOCHS)
    data_root: DataRoot = ""
    group: Group = field(default_factory=Group)

    def __post_init__(self) -> None:
        super().__post_init__()
        # torch has a process for each device, JAX one for all devices.
        count = self.group.size if self.device.framework == "torch" else self.device.count
        if self.batch_size % count:
            raise ValueError(
                f"batch_size {self.batch_size}; allowed on {count} devices: a multiple of {count}"
            )
        if self.dataset:
            batches.check_batch_size(self.batch_size, len(self.dataset.train))

    @classmethod
    def start(cls, process: Process, data: Collection | None) -> Workload:
        """Return the workload of a process's parameters; with several devices in torch, one
        device's part of it."""
        given = process.parameters
        synchronised = process.device.framework == "jax" and given["device_count"] > 1
        process.run.add_settings(batch_norm="synchronised" if synchronised else "per replica")
        if process.device.framework != "torch" or given["device_count"] == process.group.size:
            return process.build(cls, data)
        return process.build(
            cls, data, batch_size=max(1, given["batch_size"] // given["device_count"])
        )

    @cached_property
    def arrays(self) -> weights.Weights:
        """Return the initial weights by torchvision's layer names."""
        return weights.draw(self.num_classes, self.seed)

    @property
    def metric(self) -> str | None:
        """Return the accuracy's name; None for synthetic images, whose labels mean nothing."""
        return "top1" if self.dataset else None

    @property
    def num_classes(self) -> int:
        """Return the number of classes; ImageNet's for synthetic images."""
        return self.dataset.num_classes if self.dataset else IMAGENET_CLASSES

    @property
    def device_batch_size(self) -> int:
        """Return the images a step of each process: a device's part in torch, the whole batch in
        other frameworks."""
        return self.batch_size // self.group.size

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of full batches in an epoch; ImageNet's number for synthetic images."""
        images = len(self.dataset.train) if self.dataset else IMAGENET_IMAGES
        return images // self.batch_size

    @property
    def peak(self) -> float:
        """Return the highest learning rate at this batch size."""
        return self.learning_rate * self.batch_size / RATE_BATCH_SIZE

    def rate(self, step: Any, minimum: Callable = min, number: Callable = float) -> Any:
        """Return a step's learning rate: a linear warm-up of 5 epochs, then a tenth after 30,
        60, 80 and 90 epochs.

        Args:
            step: step from 0, a number or a framework's array; the rate of step 0 is above 0.
            minimum: the framework's minimum of two arrays.
            number: the framework's conversion of a bool array to 0 and 1.
        """
        epoch_steps = (
            self.steps_per_epoch * self.schedule_epochs / EPOCHS
        )  # per epoch of the protocol's 90
        warm_up = minimum(1.0, (step + 1) / (WARM_UP_EPOCHS * epoch_steps))
        num_drops = sum(number(step >= epoch * epoch_steps) for epoch in DROP_EPOCHS)
        return self.peak * warm_up * DROP**num_drops

    def order(self, epoch: int) -> list[numpy.ndarray]:
        """Return the image indices of this process's part of each batch of an epoch."""
        start, order = self.group.rank * self.device_batch_size, super().order(epoch)
        return [batch[start : start + self.device_batch_size] for batch in order]

    def crops(self, epoch: int | None) -> inputs.Crops:
        """Return the training crops of an epoch; None: the test crops."""
        part = self.dataset.test if epoch is None else self.dataset.train
        return inputs.Crops(part, self.image_size, self.seed, epoch)

    @property
    def workers(self) -> int:
        """Return the number of workers that decode pictures; 0 for synthetic images."""
        return self.num_workers if self.dataset else 0

    def decoded(self, test_batch_size: int) -> Inputs:
        """Return two functions: one from an epoch to its training batches, one to the test
        batches; threads decode."""
        test_order = batches.batch_indices(len(self.dataset.test), test_batch_size)
        return (
            lambda epoch: batches.prefetch(
                self.order(epoch), self.crops(epoch).batch, self.workers
            ),
            lambda: batches.prefetch(test_order, self.crops(None).batch, self.workers),
        )

    def plain(
        self, make_network: Callable, loss: Callable, inputs: Callable = split_target
    ) -> Plain:
        """Return the plain version: the article's momentum and weight decay.

        The compared steps begin where the warm-up reaches PARITY_RATE, or where it ends.

        Args:
            make_network, loss, inputs: see `benchbook.frameworks.plain.Plain`.
        """
        # The constants are repeated here, because the comparison checks them as well.
        epoch_steps = self.steps_per_epoch * self.schedule_epochs / 90
        peak = self.learning_rate * self.batch_size / 256
        norms = tuple(part.norm for part in weights.convolutions())

        def labels(batch: tuple, place: int) -> numpy.ndarray:
            epoch, number = divmod(place, self.steps_per_epoch)
            return batch[1] == self.dataset.train.labels[self.order(epoch)[number]]

        def rate(step: int) -> float:
            decay = 0.1 ** sum(step >= end * epoch_steps for end in (30, 60, 80, 90))
            return peak * min(1, (step + 1) / (5 * epoch_steps)) * decay

        def is_decayed(name: str) -> bool:
            return not name.startswith(norms)

        return Plain(
            make_network=make_network,
            loss=loss,
            make_optimizer=lambda: SGD(
                rate, 0.9, nesterov=True, weight_decay=1e-4, is_decayed=is_decayed
            ),
            batch_size=self.parity_batch_size,
            inputs=inputs,
            labels=labels if self.dataset else None,
            parity_weights=lambda make, begun: weights.for_parity(begun),
            schedule_start=round(5 * epoch_steps * min(1.0, PARITY_RATE / peak)),
        )

    def columns(self) -> dict:
        """Return the columns of a row that are the same for every framework.

        As in torchvision, the parameters do not include the moving statistics of batch norms.
        """
        trained = [part for parts in self.arrays.values() for part in parts[:2]]
        return super().columns() | {"parameters": sum(part.size for part in trained)}

    def synthetic_batch(self, size: int) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return a batch of noise on the host: images, float32 (n, size, size, 3), and labels,
        int32."""
        random = numpy.random.default_rng([self.seed, 0])
        images = random.standard_normal((size, self.image_size, self.image_size, 3), numpy.float32)
        return images, random.integers(self.num_classes, size=size, dtype="int32")
