"""The table of frameworks: a new one is one entry here and a folder in `benchbook.frameworks`.

That folder holds its devices, its operations for calibration and its training. A study's module
with a network is named after the network's library.
"""

import importlib
import sys
from dataclasses import dataclass
from types import ModuleType

from benchbook.machine import temporary


@dataclass(frozen=True)
class Framework:
    """The properties of a framework that are the same on all devices.

    Attributes:
        word: its name for people.
        library: in which its networks are written; a study's module with such a network has this
        name.
        settings: among those of a kind of device, the ones that it has; Keras offers no choice
        of memory format or
            fused optimiser, and JAX none of its compiler.
        reference: the framework whose float64 on the CPU is the reference of its parity; empty:
        its own.
    """

    word: str
    library: str
    settings: tuple[str, ...] = ()
    reference: str = ""


FRAMEWORKS: dict[str, Framework] = {
    "torch": Framework(
        "PyTorch", "torch", ("autotuned", "channels_last", "fused", "compiled", "graphs")
    ),
    "tensorflow": Framework("TensorFlow", "keras", ("compiled",)),
    "jax": Framework("JAX", "keras"),
    # Its convolutions have no float64.
    "mlx": Framework("MLX", "mlx", ("compiled",), reference="torch"),
}
WORDS = {name: framework.word for name, framework in FRAMEWORKS.items()}
# A study with framework `best` takes the first of these that is installed.
PREFERRED = ("tensorflow", "jax", "torch", "mlx")
# What a library imports only where it is installed: TensorFlow's converter to Lite imports JAX, and
# Keras's wrappers import scikit-learn. Together they add 2.3 s of CPU time and 170 MB to each
# process with TensorFlow, 1.5 s and 50 MB to one with JAX. Neither library has a switch against it
# (TensorFlow 2.20, Keras 3.15).
OPTIONAL_IMPORTS = {"tensorflow": ("jax", "sklearn"), "keras": ("sklearn",)}


def import_alone(name: str) -> ModuleType:
    """Import a framework, or Keras, without its optional imports, which stay importable afterwards.

    Keras reads no keras.json of the user: its data format and float type are those that the
    networks are written for.

    Raises:
        ImportError: it is not installed, or does not work here.
    """
    if known := sys.modules.get(name):
        return known  # each step of Keras asks for its framework
    skipped = [other for other in OPTIONAL_IMPORTS.get(name, ()) if other not in sys.modules]
    sys.modules.update(
        dict.fromkeys(skipped)
    )  # Python takes None for a module that is not installed
    try:
        with temporary.folder() as empty, temporary.variables(KERAS_HOME=str(empty)):
            return importlib.import_module(name)
    finally:
        for other in skipped:
            sys.modules.pop(other, None)
