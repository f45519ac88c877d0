"""The table of precisions: a new one is one entry here, and code in the runtimes that have to
prepare it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Precision:
    """The types in which a network's numbers are stored and computed.

    Attributes:
        name: in rows.
        stored: NumPy's name of the type of stored weights and images.
        family: precisions with the same tolerances in parity: fp64 (the reference), fp32, tf32
        or half.
        units: the hardware without which a device only emulates it, a key of
        `kinds.Features.units`; empty: none.
        autocast: for mixed precision, the precision of products; empty: not mixed.
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
        """Return whether products of float32 may use TF32 units."""
        return self.units == "tf32"

    @property
    def needs_scaling(self) -> bool:
        """Return whether small gradients vanish unless the loss is scaled, because float16 has
        few exponents."""
        return self.computed == "float16"


# The order matters: comparisons start with the first that is not the reference.
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
