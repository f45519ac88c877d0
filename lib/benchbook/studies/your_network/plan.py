"""The plan of your own network: choices, batches as NumPy arrays, the workload, and a first step as a check."""

import functools
import hashlib
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy

from benchbook.frameworks.devices import Device
from benchbook.frameworks.plain import SGD, Adam, Plain
from benchbook.frameworks.workload import Settings, Workload
from benchbook.measuring import calibration
from benchbook.measuring.sensors import NO_SENSOR
from benchbook.measuring.window import train_window
from benchbook.measuring.writer import Run
from benchbook.rows.points import FILES
from benchbook.studies.your_network import choices, loading, sizes

if TYPE_CHECKING:
    from benchbook.studies.process import Process  # a command that only plans does not need it

MOMENTUM = 0.9  # of sgd
POOL = 4  # different batches, which an epoch repeats
STEPS = 16  # per epoch
OFFSET = 3.0  # standard deviations, added to batch norms' offsets for the comparison of gradients
# Gates and offsets, whose gradients are sums that nearly cancel, have at most a few hundredths of the whole gradient.
LEAST_SHARE_FACTOR = 20
LONG_SECONDS = 1.0  # after so long a step of torch on a CPU, its start-up does not matter
MOST_PARITY_SAMPLES = 16  # in a batch that is repeated in float64, which is slow
DTYPES = {"f": "float32", "c": "complex64", "b": "bool", "i": "int64", "u": "int64"}  # of batches, by NumPy's kind

Batch = tuple[numpy.ndarray, ...]  # the arrays of inputs, then those of the target


@dataclass(frozen=True)
class Plan:
    """A point's choices.

    Attributes:
        device: where to train.
        network: `module:callable` or `file.py:callable` that returns a torch.nn.Module.
        arguments: further keyword arguments of that callable, as Python writes them.
        image_size, channels, num_classes: of random images; the callable gets those that are in its signature.
        example: `file.py:callable` from a batch size and a seed to (inputs, target), in place of random images. Inputs
            are an array, a tuple of the network's arguments, or a dictionary of its keyword arguments; they may contain
            lists and dictionaries of arrays. A dictionary without a target is for a network that computes its own loss.
        loader: `file.py:callable` from a batch size to an iterable of such batches, such as a DataLoader, in place of
            an example. Each epoch iterates it again, and its time counts. Batches of another size are skipped, such as
            the last of an epoch.
        loss: `file.py:callable` from outputs and target to a scalar; empty: the network's own loss, or the
            cross-entropy of logits.
        optimizer: one of `choices.ALLOWED`.
        learning_rate: of all steps.
        batch_size: samples per step.
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
    loader: str = ""
    loss: str = ""
    optimizer: str = "sgd"
    learning_rate: float = 0.01
    batch_size: int = 32
    seed: int = 1

    def __post_init__(self) -> None:
        choices.check(vars(self))

    @classmethod
    def load(cls, process: "Process") -> "Plan":
        """Return the plan of a process's parameters; its manifest identifies your files, which run here."""
        given, run = process.parameters, process.run
        run.describe(model=identity(given["network"], given["arguments"]))
        with run.during("setup"):
            run.manifest["own_files"] = loading.origins({name: given[name] for name in FILES})
            plan = cls(process.device, **{each.name: given[each.name] for each in fields(cls) if each.name != "device"})
            if plan.sequence_length:
                run.add_settings(sequence_length=plan.sequence_length)
        return plan

    @classmethod
    def start(cls, process: "Process", plan: "Plan") -> Workload:
        """Return the workload after a checked step; see `check`. Before a search, another step is checked."""
        if process.parameters["variant"] == "tuned":
            with process.run.during("setup"):
                workload = build(plan)
            check(workload, process.run)
            del workload  # frees memory for the search
        return process.build(cls, plan, check)

    @classmethod
    def measure(cls, process: "Process") -> None:
        """Measure windows; the first process also the device's matrix products and the budget's other batch sizes."""
        process.measure(evaluates=False)
        if not process.is_first:
            return
        given, run, seconds = process.parameters, process.run, process.parameters["window_seconds"]
        calibration.measure_arithmetic(process.device, run, calibration.Budget(3, seconds / 10))
        make = functools.partial(process.make, settings=process.settings)
        sizes.try_each(lambda size: make(batch_size=size), run, sizes.read(given["batch_sizes"]), seconds)

    def __getstate__(self) -> dict:
        """Return the choices only: a child process cannot unpickle your objects, so it runs your file again."""
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
        return build(replace(plan, **changed) if changed else plan, settings)  # an unchanged plan has its batches

    @staticmethod
    def candidates(device: Device) -> None:
        """Return None: a search tries all of `measuring.tuned.candidates`."""

    @property
    def sequence_length(self) -> int | None:
        """Return the tokens per sample if the first input is whole numbers of shape (n, tokens); else None."""
        first = self._pool[0][0]
        return first.shape[1] if first.ndim == 2 and first.dtype.kind == "i" else None

    def make_network(self, allowed: type) -> object:
        """Return a new network.

        Raises:
            ValueError: there is no such callable, it raises an error, or it returns anything but an `allowed`.
        """
        make = loading.resolve(self.network, "network")
        try:
            named = inspect.signature(make).parameters
        except (TypeError, ValueError):  # some C functions have no signature
            named = ()
        given = {name: getattr(self, name) for name in ("image_size", "channels", "num_classes") if name in named}
        given |= loading.keywords(self.arguments)
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
        with loading.named_in_errors(f"network {self.network!r}, called with ({shown}),"):
            network = make(**given)
        if not isinstance(network, allowed):
            kind = f"{type(network).__module__}.{type(network).__name__}"
            hint = "; a Keras model is measured by docs/examples/keras_meter.py" * kind.startswith("keras.")
            raise ValueError(f"network {self.network!r} returns a {kind}; allowed: torch.nn.Module{hint}")
        if any(base.__name__ == "LightningModule" for base in type(network).__mro__):
            raise ValueError(
                f"network {self.network!r} is a LightningModule, whose training_step is not run here; allowed: its"
                " network, or its Trainer with the callback of docs/examples/lightning_meter.py"
            )
        return network

    def columns(self) -> dict:
        """Return the columns of a row that are the same for every framework."""
        return {
            "model": identity(self.network, self.arguments),
            "dataset": "loader" if self.loader else "example" if self.example else "synthetic",
            "dataset_samples": STEPS * self.batch_size,
            "image_size": None if self.example or self.loader else self.image_size,
            "sequence_length": self.sequence_length,
            "num_workers": getattr(self._loader(self.batch_size), "num_workers", None) if self.loader else 0,
        }

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield an epoch's batches: your loader's, or else a pool of POOL batches, repeated."""
        if not self.loader:
            yield from (self._pool[step % POOL] for step in range(STEPS))
            return
        for made in self._loader(self.batch_size):
            batch = self._arrays(made)
            if _length(batch) == _length(self._pool[0]):
                yield batch

    def small(self, number: int, size: int = MOST_PARITY_SAMPLES) -> Batch:
        """Return a batch of at most `size` samples, for the comparison with float64 and for counting operations.

        Raises:
            ValueError: the example makes as many inputs as for a larger batch.
        """
        size = min(self.batch_size, size)
        batch, whole = self._batch(size, number % POOL), self._pool[0]
        inputs = self._made[len(batch)][0]
        first = next(iter(inputs.values() if isinstance(inputs, Mapping) else inputs), None)
        is_array = hasattr(inputs, "shape") or hasattr(first, "shape")  # a list of images has no common array
        if is_array and size < self.batch_size and len(batch[0]) == len(whole[0]) > size:
            raise ValueError(
                f"example {self.example!r} returns {len(whole[0])} inputs for {size} and for {self.batch_size} samples;"
                " allowed: as many as asked for"
            )
        return batch

    def parts(self, batch: tuple) -> tuple[tuple | dict, Any]:
        """Return inputs (arguments, or a dictionary of keyword arguments) and target, nested as the example has them.

        Args:
            batch: the arrays of a batch of this plan, or a framework's tensors in their place.
        """
        from torch.utils import _pytree as pytree

        left = iter(batch)
        inputs, target = pytree.tree_map(lambda leaf: leaf if leaf is None else next(left), self._made[len(batch)])
        return inputs if isinstance(inputs, tuple | dict) else (inputs,), target

    def checked_loss(self, default: Callable) -> Callable:
        """Return your loss, or without one the default; it raises Misfit if its value is not a scalar."""
        compute = loading.resolve(self.loss, "loss") if self.loss else default
        compute = compute() if isinstance(compute, type) else compute  # a class, such as torch.nn:CrossEntropyLoss

        def loss(outputs: Any, target: Any) -> Any:
            value = compute(outputs, target)
            shape = tuple(getattr(value, "shape", (type(value).__name__,)))
            if shape:
                raise loading.Misfit(f"loss {self.loss!r} returns shape {shape}; allowed: a scalar, such as a mean")
            return value

        return loss

    def plain(self, make_network: Callable, loss: Callable, offsets: Callable, tensors: Callable) -> Plain:
        """Return the plain version that training is compared with: the same network with a plain optimiser.

        In a fresh network, rounding to bfloat16 switches so many ReLUs on and off that it changes the gradient: none of
        twelve networks of torchvision agreed with float64. So batch norms' offsets are raised until hardly any ReLU is
        off. Small batches are made, not cut from large ones: edges of a graph refer to nodes, and a detector's images
        have boxes. Optimisers have torch's default constants.

        Args:
            make_network, loss: see `benchbook.frameworks.plain.Plain`.
            offsets: returns the names of the batch norms' offsets.
            tensors: from a batch to the form in which the workload's loader delivers it.
        """
        adam = functools.partial(Adam, weight_decay={"adamw": 0.01}.get(self.optimizer, 0.0))
        optimizer = functools.partial(SGD, momentum=MOMENTUM) if self.optimizer == "sgd" else adam
        return Plain(
            make_network=make_network,
            loss=loss,
            make_optimizer=lambda: optimizer(lambda step: self.learning_rate),
            batch_size=min(self.batch_size, MOST_PARITY_SAMPLES),
            inputs=self.parts,
            noise=lambda batch, place: tensors(self.small(place)),
            parity_weights=lambda make, weights: weights | {name: weights[name] + OFFSET for name in offsets()},
            least_share_factor=LEAST_SHARE_FACTOR,
            may_be_random=True,
        )

    _pool = cached_property(lambda self: [self._batch(self.batch_size, number) for number in range(POOL)])
    _made = cached_property(lambda self: {})  # the last (inputs, target), by the number of arrays
    _loaders = cached_property(lambda self: {})  # by batch size
    _first = cached_property(lambda self: {})  # batches of loaders, by batch size

    def _batch(self, size: int, number: int) -> Batch:
        """Return a new batch, checked.

        Raises:
            ValueError: the example or loader does not make `size` samples; or see `_arrays`.
        """
        if self.loader:
            if size not in self._first:
                with loading.named_in_errors(f"{self._source}, called with ({size}),"):
                    made = itertools.islice(self._loader(size), POOL)
                    first = [self._arrays(each) for each in made]
                self._first[size] = [batch for batch in first if _length(batch) == _length(first[0])]
            first = self._first[size]
            batch = first[number % len(first)] if first else ()
        else:
            make = loading.resolve(self.example, "example") if self.example else self._random_images
            with loading.named_in_errors(f"example {self.example!r}, called with ({size}, {self.seed + number}),"):
                made = make(size, self.seed + number)
            batch = self._arrays(made)
        inputs = self._made[len(batch)][0] if batch else None
        if not batch or batch[0].ndim == 0 or (hasattr(inputs, "shape") and len(batch[0]) != size):
            raise ValueError(
                f"{self._source} returns inputs of shape {batch[0].shape if batch else ()} for batch_size {size};"
                f" allowed: ({size}, ...)"
            )
        return batch

    @property
    def _source(self) -> str:
        return f"loader {self.loader!r}" if self.loader else f"example {self.example!r}"

    def _loader(self, size: int) -> Iterable:
        """Return your loader of a batch size, which is made once; an iterator is made again for each epoch."""
        if size not in self._loaders:
            make = loading.resolve(self.loader, "loader")
            with loading.named_in_errors(f"{self._source}, called with ({size}),"):
                made = make(size)
            if isinstance(made, Iterator):
                return made
            self._loaders[size] = made
        return self._loaders[size]

    def _arrays(self, made: Any) -> Batch:
        """Return the arrays of (inputs, target), and keep how they are nested.

        Raises:
            ValueError: it is something else, or contains anything but arrays of numbers.
        """
        made = (dict(made), None) if isinstance(made, Mapping) else made
        if not isinstance(made, tuple | list) or len(made) != 2:
            raise ValueError(f"{self._source} returns a {type(made).__name__}; allowed: (inputs, target)")
        made = tuple(made)
        batch = tuple(numpy.asarray(part) for part in leaves(made))
        for part in batch:
            if part.dtype.kind not in DTYPES:
                raise ValueError(f"{self._source} returns an array of {part.dtype}; allowed: numbers")
        self._made[len(batch)] = made
        return tuple(numpy.asarray(part, DTYPES[part.dtype.kind]) for part in batch)

    def _random_images(self, size: int, seed: int) -> tuple:
        random = numpy.random.default_rng([seed, size])
        shape = (size, self.channels, self.image_size, self.image_size)
        return random.random(shape, numpy.float32), random.integers(self.num_classes, size=size)


def build(plan: Plan, settings: Settings = Settings()) -> Workload:  # noqa: B008 (it is immutable)
    """Return the workload of a plan.

    Raises:
        ValueError: the network, its example or its loss does not fit; the message says what is allowed.
    """
    from benchbook.studies.your_network import network_torch

    return network_torch.build(plan, settings)


def identity(network: str, arguments: str) -> str:
    """Return the name of a network in rows: where it comes from, and a digest of its arguments.

    Two networks of one callable, or of callables with one name, are different work.
    """
    name = network.replace("\\", "/").rpartition("/")[2]
    return f"{name} {hashlib.sha256(arguments.encode()).hexdigest()[:6]}" if arguments.strip() else name


def check(workload: Workload, record: Run) -> float:
    """Take a step, append it as a rough first row, restore the workload, and return the step's loss.

    This finds parts that do not fit together before anything is measured. If the first step may be slow (a GPU loads
    its kernels), the row is of a second step.

    Raises:
        ValueError: the step raises an error, or its loss is not a finite number.
    """
    record.describe(**workload.description())
    fresh, batch = workload.snapshot(), next(iter(workload.batches(0)))
    shapes = ", ".join(f"{str(part.dtype).removeprefix('torch.')} {tuple(part.shape)}" for part in batch)
    with record.during("warmup"):
        with loading.named_in_errors(f"a step of {workload.description()['model']} on a batch of ({shapes})"):
            first = rough = train_window(workload, NO_SENSOR, [batch])
        if not math.isfinite(first["loss"]):
            raise ValueError(
                f"the loss of the first step is {first['loss']}; allowed: a finite number. Check the learning rate, the"
                " precision and the numbers in the batch"
            )
        if not workload.device.is_cpu or first["seconds"] < LONG_SECONDS:
            rough = train_window(workload, NO_SENSOR, [batch])
        record.append(**rough)
    workload.restore(fresh)
    return first["loss"]


def leaves(part: Any) -> list:
    """Return the leaves of nested tuples, lists and dictionaries, in order; None is no leaf."""
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(part) if leaf is not None]


def _length(batch: Batch) -> list[tuple]:
    """Return the length of a batch's first array in a list, which is empty without an array."""
    return [part.shape[:1] for part in batch[:1]]


def count_operations(*counts: Callable[[], float]) -> dict:
    """Return the operations of a step per sample, from the first function that does not fail; print why if all fail."""
    reason = ""
    for count in counts:
        try:
            return {"flops_per_sample": count()}
        except Exception as error:  # networks raise anything for meta tensors, which have no values
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    print(f"The network's operations were not counted: {reason}")
    return {"flops_per_sample": None}
