"""The plan of your own network: its choices, and the names of your code."""

import hashlib
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import Field

from benchbook.frameworks.devices import Device
from benchbook.measuring import calibration
from benchbook.rows.points import FILES
from benchbook.studies.experiments.parameters import LearningRate, Precision, SearchSeconds
from benchbook.studies.experiments.plan import StudyPlan
from benchbook.studies.experiments.process import Process
from benchbook.studies.your_network import loading

OPTIMIZERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class Plan(StudyPlan):
    """A point's choices.

    Attributes:
        dataset: None; batches come from `loader`.
        loader: `file.py:callable` from a batch size to an iterable of (inputs, target), such as
        a DataLoader or a list.
            Inputs are an array, a tuple of the network's arguments, or a dictionary of its
            keyword arguments; they may contain lists and dictionaries of arrays. A dictionary
            without a target is for a network that computes its own loss. Each epoch iterates it
            again, and its time counts. Batches of another size are skipped, such as the last of
            an epoch.
    """

    MODEL = ""  # see `columns`
    FRAMEWORKS = ("torch",)
    DATASETS = ()
    WITHOUT = ("data_resident", "num_workers")
    EXAMPLE = {
        "network": "torchvision.models:shufflenet_v2_x1_0",
        "image_size": 64,
        "batch_size": 16,
    }

    network: Annotated[
        str, Field(description="module:callable or file.py:callable, which makes a torch.nn.Module")
    ] = "torchvision.models:resnet18"
    arguments: Annotated[
        str, Field(description='arguments of the callable, such as "num_classes=10"')
    ] = ""
    image_size: Annotated[int, Field(ge=1, description="pixels a side of random images")] = 224
    channels: Annotated[int, Field(ge=1, description="channels of random images")] = 3
    loader: Annotated[
        str, Field(description="file.py:callable; makes batches of (inputs, target) of a size")
    ] = ""
    loss: Annotated[
        str,
        Field(
            description="file.py:callable of (outputs, target); empty: the network's own, or cross-entropy"
        ),
    ] = ""
    optimizer: Annotated[
        Literal[*OPTIMIZERS], Field(description="with momentum 0.9, if it is sgd")
    ] = "sgd"
    learning_rate: LearningRate = 0.01
    batch_size: Annotated[int, Field(ge=1, description="samples a step")] = 32
    precision: Precision = "fp32"
    num_windows: int = 6
    window_seconds: float = 1.5
    num_warmup_steps: int = 5
    num_parity_steps: int = 1
    parity_batch_size: int = 16
    search_seconds: SearchSeconds = 120.0

    def __post_init__(self) -> None:
        super().__post_init__()
        loading.keywords(self.arguments)

    @classmethod
    def load(cls, process: Process) -> None:
        """Describe the network and your files in a process's run; return None, because batches
        come from `loader`."""
        given, run = process.parameters, process.run
        run.describe(model=identity(given["network"], given["arguments"]))
        with run.during("setup"):
            run.manifest["own_files"] = loading.digests({name: given[name] for name in FILES})

    @classmethod
    def measure(cls, process: Process) -> None:
        """Measure windows; the first process also measures the device's matrix products."""
        process.measure(evaluates=False)
        if process.is_first:
            given = {"num_windows": 3, "window_seconds": process.parameters["window_seconds"] / 10}
            given |= {"matrix_sizes": "512 1024 2048", "seed": process.parameters["seed"]}
            calibration.measure_arithmetic(process.device, process.run, given)

    def columns(self) -> dict:
        """Return the columns of a row that do not depend on the batches."""
        own = {"dataset": "loader", "image_size": None} if self.loader else {}
        return (
            super().columns()
            | {"model": identity(self.network, self.arguments), "num_workers": 0}
            | own
        )


def look(given: dict[str, Any]) -> None:
    """Check a point's choices and resolve the names of your code, which may run long or end Python.

    Raises:
        ValueError: the first wrong choice, or an error of your code.
    """
    choices = {
        each.name: given[each.name]
        for each in fields(Plan)
        if each.name in given.keys() - {"device"}
    }
    Plan(None, Device("cpu", "any"), **choices)
    for name in FILES:
        if given[name]:
            loading.resolve(given[name], name)


def identity(network: str, arguments: str) -> str:
    """Return the name of a network in rows: where it comes from, and a digest of its arguments.

    Two networks of one callable, or of callables with one name, are different work.
    """
    name = network.replace("\\", "/").rpartition("/")[2]
    return (
        f"{name} {hashlib.sha256(arguments.encode()).hexdigest()[:6]}"
        if arguments.strip()
        else name
    )
