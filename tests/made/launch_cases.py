"""Functions that tests of the launcher call in other processes."""

import os
import sys
import time
from pathlib import Path

from benchbook.machine import launch, processes
from benchbook.measuring import protocol
from made.fakes import CPU, run


def double(number: int) -> int:
    """Print, send a message, and return twice a number."""
    print("printed")
    os.write(1, b"written by C code\n")
    launch.send({"number": number})
    return 2 * number


def fail(message: str) -> None:
    """Raise an error."""
    raise NotImplementedError(message)


def die(number: int) -> None:
    """Print a line, and end by a signal."""
    print("the last words", file=sys.stderr)
    os.kill(os.getpid(), number)


def hang(marker: str) -> None:
    """Write this process's id to a file, and never end but by an interrupt, which is written to
    the file too."""
    Path(marker).write_text(str(os.getpid()))
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        Path(marker).write_text("interrupted")
        raise


def train_replica(folder: str, choices: dict, killed_at: int = 0) -> list[float]:
    """Train ResNet-50's replica of a rank on a small network; return the losses; rank 1 may kill
    itself in a step."""
    from benchbook.frameworks.torch import replicas
    from made.small_replica import build

    group = replicas.join(CPU, 60.0)
    workload = build(CPU, group, killed_at=killed_at, **choices)
    record = run(Path(folder) / str(group.rank))
    protocol.warm_up(workload, record, 1)
    protocol.measure_windows(workload, record, protocol.Amount(num_windows=3, samples_per_window=8))
    replicas.leave()
    rows = record.rows()
    return rows.loc[rows["phase"].isin(["train", "evaluate"]), "loss"].tolist()


def own() -> list[int]:
    """Return the processes that this one counts as its own run's."""
    return [process.pid for process in processes.own()]
