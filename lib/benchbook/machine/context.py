"""What the processes of one study share. `launch` hands it to each process that it starts.

A Jupyter kernel, and what that starts, read it from the file that BENCHBOOK_RUN names.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

FILE = "BENCHBOOK_RUN"  # in the environment: the path of a file from `write`


@dataclass(frozen=True)
class Context:
    """The context of a process; empty values are those that a user sets, or the defaults.

    Attributes:
        session, machine: their names.
        outputs, state, sessions: paths, see `layout`.
        run_id: of the first process that measures windows; the executed notebook has its name.
        supervisor: the process that runs the points; 0: a user runs the cells.
        process_seconds: the limit of one measuring process.
        patience: see `contention.patience`.
        limits: see `identity.limits`.
        strict: whether a fault of this library ends a report, as in tests, or leaves out a file.
        ranks: processes on this host of a loop that is measured in several.
        failed_downloads: why, by folder of the cache; they are not tried again.
    """

    session: str = ""
    machine: str = ""
    outputs: str = ""
    state: str = ""
    sessions: str = ""
    run_id: str = ""
    supervisor: int = 0
    process_seconds: float | None = None
    patience: float | None = None
    limits: dict | None = None
    strict: bool = False
    ranks: tuple[int, ...] = ()
    failed_downloads: dict[str, str] = field(default_factory=dict)


_own: Context | None = None


def current() -> Context:
    """Return this process's context."""
    if _own is None:
        path = os.environ.get(FILE)
        adopt(Context(**json.loads(Path(path).read_text(encoding="utf-8")) if path else {}))
    return _own


def adopt(given: Context) -> None:
    """Take a whole context, of the process that started this one."""
    global _own
    _own = given


def change(**values: object) -> None:
    """Change the context of this process, and of those that it starts from now on."""
    global _own
    _own = replace(current(), **values)


@contextmanager
def changed(**values: object) -> Iterator[None]:
    """Change the context in a `with` block, and restore it at its end."""
    before = {name: getattr(current(), name) for name in values}
    change(**values)
    try:
        yield
    finally:
        change(**before)


def write(path: Path) -> None:
    """Write this process's context to a file."""
    path.write_text(json.dumps(asdict(current())), encoding="utf-8")
