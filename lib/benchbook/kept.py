"""Answers of parity's float64 reference, computed once and kept in files: it is the same for all trials of a point.

A search compares every setting that is faster with float64 on the CPU, at the same weights and on the same batches.
What float64 says does not depend on the setting, and takes longer than all else of a trial.
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from benchbook.devices import Device
from benchbook.workload import ParitySubject, ParityWorkload

REFERENCE = "fp64"


class KeptReference:
    """A workload as parity asks it, whose reference's answers are shared by all that hold the same folder.

    Args:
        workload: with the weights that every workload of the folder has.
        folder: that keeps the answers; arrays in float32, which is finer than any tolerance.
    """

    def __init__(self, workload: ParityWorkload, folder: Path) -> None:
        self._workload = workload
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        """Return whatever else parity asks of the workload itself."""
        return getattr(self._workload, name)

    def parity_subject(self, device: Device, precision: str) -> ParitySubject:
        """Return the workload's own copy in any precision but the reference's, whose answers are kept."""
        if precision != REFERENCE:
            return self._workload.parity_subject(device, precision)
        return _Replayed(lambda: self._workload.parity_subject(device, precision), self._folder)


class _Replayed:
    """The reference of a comparison: it answers from files, and computes what is not there yet."""

    def __init__(self, make: Callable[[], ParitySubject], folder: Path) -> None:
        self._make, self._folder = make, folder
        self._subject: ParitySubject | None = None
        self._batches: list = []  # of the steps that were taken

    def parameters(self) -> dict[str, numpy.ndarray]:
        """Return every trainable parameter by name."""
        return self._answer("parameters", lambda subject: _narrow(subject.parameters()))

    def gradients(self, batch: Any) -> tuple[float, dict[str, numpy.ndarray]]:
        """Return mean loss and gradients by name, at the present weights."""

        def compute(subject: ParitySubject) -> tuple[float, dict[str, numpy.ndarray]]:
            loss, gradients = subject.gradients(batch)
            return loss, _narrow(gradients)

        return self._answer("gradients", compute)

    def step(self, batch: Any) -> float:
        """Train on one batch and return its mean loss from before the step."""
        loss = self._answer("step", lambda subject: subject.step(batch))
        self._batches.append(batch)
        return loss

    def _answer(self, what: str, compute: Callable[[ParitySubject], Any]) -> Any:
        """Return what the reference answers after the steps so far."""
        number = len(self._batches)
        path = self._folder / f"{what}-{number}"
        if path.exists():
            if what == "step" and self._subject is not None:
                compute(self._subject)  # its weights go on with the answers
            return pickle.loads(path.read_bytes())
        if self._subject is None:
            self._subject = self._make()
            for batch in self._batches:  # an earlier comparison ended before this step
                self._subject.step(batch)
        answer = compute(self._subject)
        path.write_bytes(pickle.dumps(answer))
        return answer


def _narrow(arrays: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    return {name: numpy.asarray(array, numpy.float32) for name, array in arrays.items()}
