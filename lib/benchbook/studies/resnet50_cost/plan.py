"""What is to be built: the protocol's constants, the schedule, and one point's choices, for every framework.

Source: Elmar Haussmann (RiseML), Comparing Google's TPUv2 against Nvidia's V100 on ResNet-50, 2018-04-26. The network
is torchvision's (v1.5); Keras's own ResNet50 is v1 with convolution biases, so that the same one is built there.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy
import pandas

from benchbook.frameworks import batches
from benchbook.frameworks.devices import Device, Group
from benchbook.frameworks.plain import SGD, Plain, split_target
from benchbook.frameworks.workload import Settings, Workload
from benchbook.measuring import parallel
from benchbook.studies import datasets
from benchbook.studies.datasets import Collection
from benchbook.studies.plan import Inputs, StudyPlan
from benchbook.studies.resnet50_cost import inputs, weights

if TYPE_CHECKING:
    from benchbook.studies.experiments import Experiment  # a process that plans does without

# Source: https://arxiv.org/abs/1706.02677, and the article's scripts for TPU and GPU.
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4
IMAGES_OF_RATE = 256  # the learning rate is per so many images in a step
WARM_UP_EPOCHS, DROPS, DROP = 5, (30, 60, 80, 90), 0.1
EPOCHS = 90
# Of torchvision's batch norms; Keras has others by default.
NORM_EPSILON, NORM_KEPT = 1e-5, 0.9
IMAGENET_IMAGES, IMAGENET_CLASSES = 1_281_167, 1000
REPLICA = "benchbook.studies.resnet50_cost.plan:build_replica"  # as `parallel.Job` takes it
MOST_TEST_IMAGES = 128  # in a batch of the test
# Of the steps that are compared with float64. The first ones of the warm-up round to nothing in float32; the highest
# ones throw the few images of a comparison to and fro, so that after ten steps rounding alone decides.
PARITY_RATE = 3e-4


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices: Nesterov momentum, weight decay on all but batch norms, and `rate` step by step.

    Attributes:
        dataset: from `collect`; None trains on one synthetic batch that lies on the device, without augmentation.
        device: with Keras its count is of devices that train together, all of this process.
        batch_size: images in a step, of all devices together.
        image_size: pixels a side.
        learning_rate: the highest one, for each 256 images in a step.
        schedule_epochs: epochs that the protocol's 90 are squeezed or stretched to.
        sync_batch_norm: batch norms of several devices see the whole batch; else each sees its part.
        group: with torch, the devices that train together, a process each, and which of them this is.
    """

    MODEL = "resnet50"
    FRAMEWORKS = ("torch", "tensorflow", "jax", "mlx")
    SMALLEST = (lambda: None), {"image_size": 64, "batch_size": 4, "parity_batch_size": 4}

    dataset: Collection | None = field(kw_only=False)
    batch_size: int = 256
    num_workers: int = 2
    parity_batch_size: int = 8
    image_size: int = 224
    learning_rate: float = 0.1
    schedule_epochs: float = EPOCHS
    sync_batch_norm: bool = False
    group: Group = field(default_factory=Group)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("data_resident", not self.data_resident, "False (pictures are decoded ahead)")
        self.require("image_size", self.image_size >= 32, "32 or more")
        for name in ("learning_rate", "schedule_epochs"):
            self.require(name, getattr(self, name) > 0, "above 0")
        # torch's devices have a process each, Keras's are all in one.
        count = self.group.size if self.device.framework == "torch" else self.device.count
        if self.batch_size % count:
            raise ValueError(f"batch_size {self.batch_size}; allowed on {count} devices: a multiple of {count}")
        if self.dataset:
            batches.check_batch_size(self.batch_size, len(self.dataset.train))

    @cached_property
    def arrays(self) -> weights.Weights:
        """Return the first weights, by torchvision's layer names."""
        return weights.draw(self.num_classes, self.seed)

    @property
    def metric(self) -> str | None:
        """Return what the accuracy is: labels of synthetic images mean nothing."""
        return "top1" if self.dataset else None

    @property
    def num_classes(self) -> int:
        """Return the classes: ImageNet's for synthetic images."""
        return self.dataset.num_classes if self.dataset else IMAGENET_CLASSES

    @property
    def share(self) -> int:
        """Return the images in a step of one device."""
        return self.batch_size // self.group.size

    @property
    def steps_per_epoch(self) -> int:
        """Return the full batches in an epoch; synthetic images have as many as ImageNet."""
        images = len(self.dataset.train) if self.dataset else IMAGENET_IMAGES
        return images // self.batch_size

    @property
    def peak(self) -> float:
        """Return the highest learning rate, of a whole batch."""
        return self.learning_rate * self.batch_size / IMAGES_OF_RATE

    def rate(self, step: Any, minimum: Callable = min, number: Callable = float) -> Any:
        """Return a step's learning rate: a line up for 5 epochs, then divided by 10 after 30, 60, 80 and 90.

        Args:
            step: from 0, a number or a framework's array; the first step's rate is above 0 already.
            minimum, number: of two such arrays the smaller, and of a bool array 0 or 1, in the framework's operations.
        """
        scale = self.steps_per_epoch * self.schedule_epochs / EPOCHS  # steps in what was one epoch of 90
        risen = minimum(1.0, (step + 1) / (WARM_UP_EPOCHS * scale))
        fallen = sum(number(step >= epoch * scale) for epoch in DROPS)
        return self.peak * risen * DROP**fallen

    def order(self, epoch: int) -> list[numpy.ndarray]:
        """Return the indices of this device's part of each batch of an epoch."""
        start, order = self.group.rank * self.share, super().order(epoch)
        return [batch[start : start + self.share] for batch in order]

    def crops(self, epoch: int | None) -> inputs.Crops:
        """Return the training crops of an epoch, or the test's."""
        part = self.dataset.test if epoch is None else self.dataset.train
        return inputs.Crops(part, self.image_size, self.seed, epoch)

    @property
    def workers(self) -> int:
        """Return the workers that decode pictures; synthetic ones need none."""
        return self.num_workers if self.dataset else 0

    def decoded(self, test_batch_size: int) -> Inputs:
        """Return functions to an epoch's training batches and to the test batches, decoded by threads."""
        test_order = batches.batch_indices(len(self.dataset.test), test_batch_size)
        return (
            lambda epoch: batches.prefetch(self.order(epoch), self.crops(epoch).batch, self.workers),
            lambda: batches.prefetch(test_order, self.crops(None).batch, self.workers),
        )

    def plain(self, make_network: Callable, loss: Callable, inputs: Callable = split_target) -> Plain:
        """Return what training is compared with: the article's momentum and weight decay, in plain code.

        Steps are compared from where the warm-up has reached PARITY_RATE, or all of it has passed.

        Args:
            make_network, loss, inputs: see `benchbook.frameworks.plain.Plain`.
        """
        epoch_steps = self.steps_per_epoch * self.schedule_epochs / 90  # of one of the article's 90 epochs
        peak = self.learning_rate * self.batch_size / 256
        norms = tuple(part.norm for part in weights.convolutions())

        def labels(batch: tuple, place: int) -> numpy.ndarray:
            epoch, number = divmod(place, self.steps_per_epoch)
            return batch[1] == self.dataset.train.labels[self.order(epoch)[number]]

        def rate(step: int) -> float:
            fallen = 0.1 ** sum(step >= end * epoch_steps for end in (30, 60, 80, 90))
            return peak * min(1, (step + 1) / (5 * epoch_steps)) * fallen

        def is_decayed(name: str) -> bool:
            return not name.startswith(norms)

        return Plain(
            make_network=make_network,
            loss=loss,
            make_optimizer=lambda: SGD(rate, 0.9, nesterov=True, weight_decay=1e-4, is_decayed=is_decayed),
            batch_size=self.parity_batch_size,
            inputs=inputs,
            labels=labels if self.dataset else None,
            parity_weights=lambda make, begun: weights.for_parity(begun),
            schedule_start=round(5 * epoch_steps * min(1.0, PARITY_RATE / peak)),
        )

    def columns(self) -> dict:
        """Return the columns of a row that are the same for every framework; moving statistics are no parameters."""
        trained = [part for parts in self.arrays.values() for part in parts[:2]]
        return super().columns() | {"parameters": sum(part.size for part in trained)}

    def synthetic_batch(self, size: int) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return a batch of noise on the host: float32 (n, size, size, 3), and labels, int32."""
        random = numpy.random.default_rng([self.seed, 0])
        images = random.standard_normal((size, self.image_size, self.image_size, 3), numpy.float32)
        return images, random.integers(self.num_classes, size=size, dtype="int32")


build, source, collect = Plan.build, Plan.source, datasets.collect


def start(experiment: "Experiment", pictures: Collection | None) -> Workload:
    """Return the workload of a run; of several devices of torch, which take a process each, one's share of it."""
    given = experiment.parameters
    experiment.run.add_settings(batch_norm="synchronised" if given["sync_batch_norm"] else "per replica")
    if _is_one_process(experiment):
        return experiment.build(Plan, pictures)
    return experiment.build(Plan, pictures, None, batch_size=max(1, given["batch_size"] // given["device_count"]))


def measure(experiment: "Experiment") -> pandas.DataFrame:
    """Measure the windows of a run, for several devices of torch in a process for each."""
    if _is_one_process(experiment):
        return experiment.measure()
    given, run, build = experiment.parameters, experiment.run, experiment.make.keywords
    experiment.compare()
    run.describe(batch_size=given["batch_size"])
    vars(experiment.workload).clear()  # its memory is for the processes
    named = {name: given[name] for name in ("batch_size", "dataset", "data_root", "allow_embedded")}
    with run.during("setup"):
        plan = replace(experiment.plan(), window_seconds=0.0)  # each process would go by its own clock
        options = build | named | {"settings": asdict(experiment.settings)}
        job = parallel.Job(REPLICA, experiment.device, given["device_count"], plan, options, given["num_warmup_steps"])
    return parallel.measure(job, run)


def _is_one_process(experiment: "Experiment") -> bool:
    return experiment.parameters["device_count"] == 1 or experiment.device.framework != "torch"


def build_replica(
    device: Device, group: Group, dataset: str, data_root: str, allow_embedded: bool, settings: dict, **choices: Any
) -> Workload:
    """Return one device's part of the workload, from values that JSON can hold; see `Plan` and `collect`."""
    pictures = collect(dataset, data_root, allow_embedded)
    return Plan.build(pictures, device, group=group, settings=Settings(**settings), **choices)
