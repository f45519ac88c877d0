"""The table of the frameworks: a new one is a line here, and a folder in `benchbook.frameworks`.

What a framework answers about devices, what calibration asks of it and how it trains are in its folder of
`benchbook.frameworks`; a study's network is named after the library that it is written in.
"""

import importlib
import sys
from dataclasses import dataclass, field
from types import ModuleType


@dataclass(frozen=True)
class Framework:
    """The properties of a framework that are the same on all devices.

    Attributes:
        word: what people call it.
        library: what its networks are written in, and so the module of a study that builds them.
        settings: what a search may turn on besides the precision, of what a kind of device lists; Keras leaves no
            choice of memory format or of a fused optimiser, and JAX none of its compiler.
        lacks: by kind of device, the precisions of that kind that this framework has no kernels for.
        reference: whose float64 on the CPU its training is compared with; empty: its own.
        frees_to_system: whether what its steps free on a CPU goes to the C library, which may give it back to the
            system; the others' steps were seen to keep theirs.
    """

    word: str
    library: str
    settings: tuple[str, ...] = ()
    lacks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reference: str = ""
    frees_to_system: bool = False


FRAMEWORKS: dict[str, Framework] = {
    "torch": Framework(
        "PyTorch", "torch", ("autotuned", "channels_last", "fused", "compiled", "graphs"), frees_to_system=True
    ),
    "tensorflow": Framework("TensorFlow", "keras", ("compiled",), lacks={"metal": ("amp_bf16",)}),
    "jax": Framework("JAX", "keras"),
    "mlx": Framework("MLX", "mlx", ("compiled",), reference="torch"),  # its convolutions have no float64
}
WORDS = {name: framework.word for name, framework in FRAMEWORKS.items()}
# A study with framework `best` takes the first of these that is installed.
PREFERRED = ("tensorflow", "jax", "torch", "mlx")


# What a library imports wherever it is installed, for users of its own, and does without elsewhere: TensorFlow's
# converter to Lite takes JAX along, and Keras's wrappers scikit-learn. Together they take a second of every process.
TAKEN_ALONG = {"tensorflow": ("jax", "sklearn"), "keras": ("sklearn",)}


def import_alone(name: str) -> ModuleType:
    """Import a framework, or Keras, without its optional imports, which stay importable afterwards.

    Raises:
        ImportError: it is not installed, or does not work here.
    """
    kept_out = [other for other in TAKEN_ALONG.get(name, ()) if other not in sys.modules]
    sys.modules.update(dict.fromkeys(kept_out))  # to Python, None is a module that is not installed
    try:
        return importlib.import_module(name)
    finally:
        for other in kept_out:
            sys.modules.pop(other, None)
