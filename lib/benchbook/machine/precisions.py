"""The table of precisions: a new one is a line here, and in the runtimes that have to do something for it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Precision:
    """The types in which a network's numbers are stored and computed.

    Attributes:
        name: as rows name it.
        stored: NumPy's name of the type in which weights and images are kept.
        family: what has the same tolerances in parity: fp64 (the reference), fp32, tf32 or half.
        units: the hardware that it needs to be more than imitated, a key of `kinds.Features.units`; empty: none.
        autocast: the precision in which a framework's mixed precision computes products; empty: it is not mixed.
    """

    name: str
    stored: str
    family: str
    units: str = ""
    autocast: str = ""

    @property
    def computed(self) -> str:
        """Return NumPy's name of the type in which products are computed."""
        return PRECISIONS[self.autocast or self.name].stored

    @property
    def uses_tf32(self) -> bool:
        """Return whether products of float32 may go through TF32 units."""
        return self.units == "tf32"

    @property
    def needs_scaling(self) -> bool:
        """Return whether small gradients vanish, unless the loss is scaled: float16 has few exponents."""
        return self.computed == "float16"


# In the order in which a search tries them.
PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("fp64", "float64", "fp64"),
        Precision("fp32", "float32", "fp32"),
        Precision("tf32", "float32", "tf32", units="tf32"),
        Precision("amp_bf16", "float32", "half", units="bf16", autocast="bf16"),
        Precision("amp_fp16", "float32", "half", autocast="fp16"),
        Precision("bf16", "bfloat16", "half", units="bf16"),
        Precision("fp16", "float16", "half"),
    )
}
