"""What a compute device is, and the error for one that is not there."""

from dataclasses import dataclass

from benchbook.machine.kinds import KINDS, Features
from benchbook.machine.precisions import PRECISIONS


class DeviceUnavailable(RuntimeError):
    """The device, or the framework, that was asked for is not on this machine."""


class FrameworkMissing(DeviceUnavailable):
    """The framework that was asked for is not installed, or cannot be imported."""


@dataclass(frozen=True)
class Device:
    """One compute device of one framework.

    Attributes:
        kind: a key of `KINDS`, as rows name it.
        name: the marketing name of the chip.
        framework: the framework that drives it.
        index: its number among the framework's visible devices of that kind.
        count: how many devices from this one on work together, for what counts the energy of them all; 0 where
            another process counts, or no process can.
        capability: an NVIDIA GPU's compute capability, such as 8.6; None where it is not known, or there is none.

    Raises:
        DeviceUnavailable: a kind that is not in the table.
    """

    kind: str
    name: str
    framework: str = "torch"
    index: int = 0
    count: int = 1
    capability: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DeviceUnavailable(f"kind of device {self.kind!r}; allowed: {', '.join(KINDS)}")

    @property
    def features(self) -> Features:
        """Return what all devices of this kind can do."""
        return KINDS[self.kind]

    @property
    def is_cpu(self) -> bool:
        """Return whether work runs on the host's own cores."""
        return self.kind == "cpu"

    def has_units(self, precision: str) -> bool:
        """Return False where this device is known to lack the hardware of a precision, which it could only imitate."""
        units = PRECISIONS[precision].units
        least = self.features.units.get(units)
        return not units or (least is not None and (self.capability is None or self.capability >= least))

    def refuses(self, precision: str) -> bool:
        """Return whether this is tf32 and there are no such units: it would be fp32 under another name."""
        return PRECISIONS[precision].uses_tf32 and not self.has_units(precision)

    def check_precision(self, precision: str) -> None:
        """Raise an error for a precision that the device refuses.

        Raises:
            NotImplementedError: the device has none.
        """
        if self.refuses(precision):
            having = ", ".join(name for name, kind in KINDS.items() if "tf32" in kind.units)
            least = self.features.units.get("tf32")
            since = f" from compute capability {least:g}" if least else ""
            raise NotImplementedError(f"{self.name} ({self.kind}) has no tf32; allowed: {having}{since}")
