"""What is to be built: a point's choices, checked, and its batches as NumPy arrays; built, and one step tried."""

import functools
import importlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy
import pandas

from benchbook.frameworks.devices import Device
from benchbook.frameworks.plain import SGD, Adam, Plain
from benchbook.frameworks.workload import Settings, Workload
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.measuring import calibration
from benchbook.measuring.sensors import NO_SENSOR
from benchbook.measuring.window import train_window
from benchbook.measuring.writer import Run
from benchbook.rows import records
from benchbook.studies.your_network import choices, loading, sizes

if TYPE_CHECKING:
    from benchbook.studies.experiments import Experiment  # a process that plans does without

MOMENTUM = 0.9  # of sgd
POOL = 4  # different batches, which an epoch repeats
STEPS = 16  # of an epoch
OPEN = 3.0  # deviations above 0 at which batch norms lie where gradients are compared
# Gates and offsets, whose gradients are sums that nearly cancel, have at most a few hundredths of the whole gradient.
LEAST_SHARE_FACTOR = 20
LONG_SECONDS = 1.0  # of torch's step on a CPU, whose start is little of it
MOST_PARITY_SAMPLES = 16  # in a batch that is repeated in float64, which is slow
KEPT_AS = {"f": "float32", "c": "complex64", "b": "bool", "i": "int64", "u": "int64"}  # by kind, as frameworks compute

Batch = tuple[numpy.ndarray, ...]  # the arrays of (inputs, target), one after the other


@dataclass(frozen=True)
class Plan:
    """A point's choices.

    Attributes:
        device: where to train, and with which framework.
        network: `module:callable` or `file.py:callable`, to a torch.nn.Module or a keras.Model.
        arguments: further keyword arguments of that callable, as Python writes them.
        image_size, channels, num_classes: of random images; the callable is given those that its signature names.
        example: `file.py:callable` from a batch size and a seed to (inputs, target), in place of images. Inputs are an
            array, a tuple of what the network takes, or a dictionary of its keyword arguments; lists and dictionaries
            of arrays may be inside. A dictionary alone is inputs with which the network computes its own loss.
        loss: `file.py:callable` from outputs and target to a scalar; empty is the network's own loss, or the
            cross-entropy of logits.
        optimizer: one of `choices.ALLOWED`.
        learning_rate: of all steps.
        batch_size: samples a step.
        seed: of weights and batches.

    Raises:
        ValueError: see `choices.check`.
    """

    device: Device
    network: str
    arguments: str = ""
    image_size: int = 224
    channels: int = 3
    num_classes: int = 1000
    example: str = ""
    loss: str = ""
    optimizer: str = "sgd"
    learning_rate: float = 0.01
    batch_size: int = 32
    seed: int = 1

    def __post_init__(self) -> None:
        choices.check(vars(self) | {"framework": self.device.framework})

    def __getstate__(self) -> dict:
        """Return the choices alone: another process cannot import your file, but run it and make batches itself."""
        return {choice.name: getattr(self, choice.name) for choice in fields(self)}

    @staticmethod
    def build(
        plan: "Plan",
        device: Device,
        variant: str = "reference",
        settings: Settings = Settings(),  # noqa: B008 (it is immutable)
        **changed: Any,
    ) -> Workload:
        """Return the workload of a plan with some choices changed; see `build` below."""
        changed = {name: value for name, value in changed.items() if getattr(plan, name) != value}
        return build(replace(plan, **changed) if changed else plan, settings)  # a plan keeps its batches

    @staticmethod
    def candidates(device: Device) -> None:
        """Return None: a search tries all that it has."""

    @property
    def sequence_length(self) -> int | None:
        """Return the tokens of a sample, where the network takes whole numbers of shape (n, tokens) first."""
        first = self._pool[0][0]
        return first.shape[1] if first.ndim == 2 and first.dtype.kind == "i" else None

    def make_network(self, allowed: type) -> object:
        """Return a new network.

        Raises:
            ValueError: the callable is not there, cannot be called so, or returns something else than `allowed`.
        """
        make = loading.resolve(self.network, "network")
        try:
            named = inspect.signature(make).parameters
        except (TypeError, ValueError):  # some callables of C tell nothing
            named = ()
        given = {name: getattr(self, name) for name in ("image_size", "channels", "num_classes") if name in named}
        given |= loading.keywords(self.arguments)
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
        with loading.blamed(f"network {self.network!r}, called with ({shown}),"):
            network = make(**given)
        if not isinstance(network, allowed):
            kind = f"{type(network).__module__}.{type(network).__name__}"
            wanted = f"{allowed.__module__}.{allowed.__name__}"
            raise ValueError(
                f"network {self.network!r} returns a {kind}; allowed with framework {self.device.framework}: {wanted}"
            )
        return network

    def columns(self) -> dict:
        """Return the columns of a row that are the same for every framework."""
        return {
            "model": self.network.rpartition(":")[2],
            "dataset": "example" if self.example else "synthetic",
            "dataset_samples": STEPS * self.batch_size,
            "image_size": None if self.example else self.image_size,
            "sequence_length": self.sequence_length,
            "num_workers": 0,
        }

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield an epoch's batches: the pool again and again."""
        yield from (self._pool[step % POOL] for step in range(STEPS))

    def small(self, number: int, size: int = MOST_PARITY_SAMPLES) -> Batch:
        """Return a batch of so many samples at most, for the comparison with float64 and for counting operations."""
        return self._batch(min(self.batch_size, size), number % POOL)

    def parts(self, batch: tuple) -> tuple[tuple | dict, Any]:
        """Return inputs (of which a dictionary is keyword arguments) and target, as the example has them.

        Args:
            batch: arrays of a batch that this plan made, or a framework's tensors in their place.
        """
        inputs, target = _refilled(self._made[len(batch)], iter(batch))
        return inputs if isinstance(inputs, tuple | dict) else (inputs,), target

    def checked_loss(self, default: Callable) -> Callable:
        """Return the loss, or the default one without; it says so where its value is no scalar."""
        compute = loading.resolve(self.loss, "loss") if self.loss else default

        def loss(outputs: Any, target: Any) -> Any:
            value = compute(outputs, target)
            shape = tuple(getattr(value, "shape", (type(value).__name__,)))
            if shape:
                raise loading.Misfit(f"loss {self.loss!r} returns shape {shape}; allowed: a scalar, such as a mean")
            return value

        return loss

    def plain(self, make_network: Callable, loss: Callable, offsets: Callable, tensors: Callable) -> Plain:
        """Return what training is compared with: the same network, in plain code.

        In a fresh network rounding to bfloat16 opens and shuts so many ReLUs that it turns the gradient: of twelve of
        torchvision's networks none agreed with float64. So both are compared where hardly any is shut. A batch is made
        small, not cut: the edges of a graph name nodes, and a detector's images have boxes. Optimisers have the
        constants of their framework: torch's, or Keras's own.

        Args:
            make_network, loss: see `benchbook.frameworks.plain.Plain`.
            offsets: to the names of the batch norms' offsets.
            tensors: from a batch to what the workload's loader delivers.
        """
        keras = self.device.framework != "torch"
        decay = {"adamw": 0.004 if keras else 0.01}.get(self.optimizer, 0.0)
        adam = functools.partial(Adam, epsilon=1e-7 if keras else 1e-8, uses_epsilon_hat=keras, weight_decay=decay)
        optimizer = functools.partial(SGD, momentum=MOMENTUM) if self.optimizer == "sgd" else adam
        return Plain(
            make_network=make_network,
            loss=loss,
            make_optimizer=lambda: optimizer(lambda step: self.learning_rate),
            batch_size=min(self.batch_size, MOST_PARITY_SAMPLES),
            inputs=self.parts,
            noise=lambda batch, place: tensors(self.small(place)),
            parity_weights=lambda make, weights: weights | {name: weights[name] + OPEN for name in offsets()},
            least_share_factor=LEAST_SHARE_FACTOR,
            may_be_random=True,
        )

    _pool = cached_property(lambda self: [self._batch(self.batch_size, number) for number in range(POOL)])
    _made = cached_property(lambda self: {})  # inputs and targets as they were made, by the number of their arrays

    def _batch(self, size: int, number: int) -> Batch:
        """Return one made batch, checked.

        Raises:
            ValueError: the example does not return inputs and target, or anything but arrays of numbers in them.
        """
        make = loading.resolve(self.example, "example") if self.example else self._random_images
        with loading.blamed(f"example {self.example!r}, called with ({size}, {self.seed + number}),"):
            made = make(size, self.seed + number)
        made = (made, None) if isinstance(made, Mapping) else made
        if not isinstance(made, tuple) or len(made) != 2:
            raise ValueError(f"example {self.example!r} returns a {type(made).__name__}; allowed: (inputs, target)")
        batch = tuple(numpy.asarray(part) for part in leaves(made))
        for part in batch:
            if part.dtype.kind not in KEPT_AS:
                raise ValueError(f"example {self.example!r} returns an array of {part.dtype}; allowed: numbers")
        if not batch or batch[0].ndim == 0 or (isinstance(made[0], numpy.ndarray) and len(batch[0]) != size):
            raise ValueError(
                f"example {self.example!r} returns inputs of shape {batch[0].shape if batch else ()} for batch_size"
                f" {size}; allowed: ({size}, ...)"
            )
        self._made[len(batch)] = made
        return tuple(numpy.asarray(part, KEPT_AS[part.dtype.kind]) for part in batch)

    def _random_images(self, size: int, seed: int) -> tuple:
        random = numpy.random.default_rng([seed, size])
        sides = (self.image_size, self.image_size)
        channels_first = self.device.framework == "torch"
        shape = (size, self.channels, *sides) if channels_first else (size, *sides, self.channels)
        return random.random(shape, numpy.float32), random.integers(self.num_classes, size=size)


def build(plan: Plan, settings: Settings = Settings()) -> Workload:  # noqa: B008 (it is immutable)
    """Return the workload in the framework of the plan's device; no other is imported.

    Raises:
        ValueError: the network, its example or its loss is not what it has to be; the message says what is.
    """
    package, library = __name__.rpartition(".")[0], FRAMEWORKS[plan.device.framework].library
    return importlib.import_module(f"{package}.network_{library}").build(plan, settings)


def check(workload: Workload, record: Run) -> float:
    """Take a step, append it as a rough first row, go back, and return its loss.

    What does not fit together is found before anything is measured. Where a first step may have been slow (a GPU loads
    its kernels, Keras compiles), the row is of a second one.

    Raises:
        ValueError: a step that raises something, or whose loss is no finite number.
    """
    record.describe(**workload.description())
    fresh, batch = workload.snapshot(), next(iter(workload.batches(0)))
    shapes = ", ".join(f"{str(part.dtype).removeprefix('torch.')} {tuple(part.shape)}" for part in batch)
    with record.during("warmup"):
        with loading.blamed(f"a step of {workload.description()['model']} on a batch of ({shapes})"):
            first = rough = train_window(workload, NO_SENSOR, [batch])
        if not math.isfinite(first["loss"]):
            raise ValueError(
                f"the loss of the first step is {first['loss']}; allowed: a finite number. Look at the learning rate,"
                " the precision and the numbers in the batch"
            )
        is_eager = workload.device.is_cpu and workload.device.framework == "torch"
        if not is_eager or first["seconds"] < LONG_SECONDS:
            rough = train_window(workload, NO_SENSOR, [batch])
        record.append(**rough)
    workload.restore(fresh)
    return first["loss"]


def choose(experiment: "Experiment") -> Plan:
    """Return the plan of a run's parameters; its manifest keeps which files of yours run."""
    given, run = experiment.parameters, experiment.run
    run.describe(model=given["network"].rpartition(":")[2])
    with run.during("setup"):
        run.manifest["own_files"] = loading.origins({name: given[name] for name in loading.NAMED})
        names = [each.name for each in fields(Plan) if each.name != "device"]
        plan = Plan(experiment.device, **{name: given[name] for name in names})
        if plan.sequence_length:
            run.add_settings(sequence_length=plan.sequence_length)
    return plan


def start(experiment: "Experiment", plan: Plan) -> Workload:
    """Return the workload of a run after a step that is undone; see `check`. A search is preceded by one as well."""
    if experiment.parameters["variant"] == "tuned":
        with experiment.run.during("setup"):
            workload = build(plan)
        check(workload, experiment.run)
        del workload  # its memory is the search's
    return experiment.build(Plan, plan, check)


def measure(experiment: "Experiment") -> pandas.DataFrame:
    """Measure windows, the device's products of matrices, and the other batch sizes of the budget."""
    given, run, seconds = experiment.parameters, experiment.run, experiment.parameters["window_seconds"]
    experiment.measure(evaluates=False)
    calibration.measure_arithmetic(experiment.device, run, calibration.Budget(3, seconds / 10))
    largest_from = given["batch_size"] if sizes.LARGEST in given["batch_sizes"] else 0
    make = functools.partial(experiment.make, settings=experiment.settings)
    sizes.try_each(lambda size: make(batch_size=size), run, sizes.read(given["batch_sizes"]), seconds, largest_from)
    return records.read(run.path)


def counted(*counts: Callable[[], float]) -> dict:
    """Return the operations of a step for one sample, by the first way that can count them; if none can, say why."""
    reason = ""
    for count in counts:
        try:
            return {"flops_per_sample": count()}
        except Exception as error:  # a network may do anything with tensors that have no numbers
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    print(f"Its operations were not counted: {reason}")
    return {"flops_per_sample": None}


def leaves(part: Any) -> Iterator:
    """Yield what is inside tuples, lists and dictionaries, in order."""
    if isinstance(part, Mapping | list | tuple):
        for inside in part.values() if isinstance(part, Mapping) else part:
            yield from leaves(inside)
    elif part is not None:
        yield part


def _refilled(part: Any, leaves: Iterator) -> Any:
    """Return the same tuples, lists and dictionaries with other leaves."""
    if isinstance(part, Mapping):
        return {name: _refilled(inside, leaves) for name, inside in part.items()}
    if isinstance(part, list | tuple):
        return type(part)([_refilled(inside, leaves) for inside in part])
    return None if part is None else next(leaves)
