"""How a process calibrates a device; there is no network."""

from benchbook.measuring import calibration
from benchbook.studies.process import Process


class Plan:
    """The parts of a process that calibrates."""

    @staticmethod
    def load(process: Process) -> None:
        """Load nothing."""

    @staticmethod
    def start(process: Process, data: None) -> None:
        """Build nothing."""

    @staticmethod
    def measure(process: Process) -> None:
        """Measure the ceilings of the process's device."""
        calibration.measure(process.device, process.run, process.parameters)
