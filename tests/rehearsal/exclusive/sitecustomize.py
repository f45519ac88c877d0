"""An accelerator of JAX's that one process at a time may hold, as libtpu's: Python imports this
file at its start.

Where BENCHBOOK_EXCLUSIVE_LOCK names a file, JAX has a TPU, which computes on the CPU. The first
question for it locks the file until the process ends. Every other process then has no TPU: JAX
falls back to the CPU without an error, and says why when it is asked for the TPU by name, as
libtpu does.
"""

import fcntl
import functools
import importlib.abc
import importlib.machinery
import os
import sys

LOCK = os.environ.get("BENCHBOOK_EXCLUSIVE_LOCK")
HELD = []  # the open file: closing it would unlock


@functools.cache
def take() -> bool:
    """Return whether this process holds the accelerator; the first call tries to take it."""
    file = open(LOCK, "a")  # noqa: SIM115, PTH123 (it stays open; pathlib is not needed at every start of Python)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    HELD.append(file)
    return True


def give_tpu(jax) -> None:
    """Replace the two functions by which a process asks JAX for its devices."""
    devices = jax.devices

    def devices_with_tpu(backend=None):
        if backend != "tpu":
            return devices(backend)
        if not take():
            raise RuntimeError(
                "Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by a process"
            )
        return devices("cpu")

    jax.devices = devices_with_tpu
    jax.default_backend = lambda: "tpu" if take() else "cpu"


class Finder(importlib.abc.MetaPathFinder):
    """Finds JAX as Python does, and gives it a TPU once it is imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "jax":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def execute_and_give(module):
            execute(module)
            give_tpu(module)

        spec.loader.exec_module = execute_and_give
        return spec


if LOCK:
    sys.meta_path.insert(0, Finder())
