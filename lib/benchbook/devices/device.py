"""What a compute device is, and the error for one that is not there."""

from dataclasses import dataclass


class DeviceUnavailable(RuntimeError):
    """The device, or the framework, that was asked for is not on this machine."""


class FrameworkMissing(DeviceUnavailable):
    """The framework that was asked for is not installed, or cannot be imported."""


@dataclass(frozen=True)
class Device:
    """One compute device of one framework.

    Attributes:
        kind: cpu, cuda, mps, metal or tpu, as rows name it.
        name: the marketing name of the chip.
        framework: the framework that drives it.
        index: its number among the framework's visible devices of that kind.
        count: how many devices from this one on work together, for what counts the energy of them all; 0 where
            another process counts, or no process can.
    """

    kind: str
    name: str
    framework: str = "torch"
    index: int = 0
    count: int = 1

    @property
    def is_cpu(self) -> bool:
        """Return whether work runs on the host's own cores."""
        return self.kind == "cpu"
