"""The columns of a row: what each may hold, declared once."""

import difflib
import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import pandas

from benchbook.machine import layout
from benchbook.machine.kinds import KINDS
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.machine.precisions import PRECISIONS

SCHEMA_VERSION = 2  # rises when the meaning of a column changes; a new column does not raise it
KEY = ["machine", "study", "point", "run_id", "phase", "repeat", "index"]

VARIANTS = ("reference", "controlled", "tuned")
TRAINED = ("ok", "diverged")  # statuses of points whose windows count
PHASES = ("setup", "compile", "warmup", "confirm", "train", "evaluate", "total", "parity", "idle", "calibrate")
STATUSES = (
    "ok",
    "diverged",
    "out_of_memory",
    "crashed",
    "timeout",
    "interrupted",
    "unsupported",
    "unavailable",
)
# How alike (difflib's ratio) an unknown name and a column's are when one is taken for a misspelling of the other.
# No two columns of the schema are that much alike.
NEAR_MISS = 0.8
LONGEST_NAME = 60  # characters of a column's name


UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class SchemaError(ValueError):
    """A row does not obey the schema; the message names file, line, column and what is allowed."""


@dataclass(frozen=True)
class Column:
    """What a column may hold where it holds a value.

    Attributes:
        dtype: as pandas calls it; of settings, which are dictionaries, object.
        required: whether every row has a value.
        allowed: the only values; empty: any.
        least, most: limits of a number, both allowed.
        test: what a text has to pass; None: any passes.
        rule: what an error calls allowed; empty where any value is.
    """

    dtype: str
    required: bool = False
    allowed: tuple = ()
    least: float = -math.inf
    most: float = math.inf
    test: Callable[[str], object] | None = None
    rule: str = ""

    @property
    def is_number(self) -> bool:
        """Return whether values are numbers."""
        return self.dtype in ("Int64", "Float64")

    def allows(self, value: object) -> bool:
        """Return whether a value of the column's type is allowed."""
        if self.allowed:
            return value in self.allowed
        if self.test:
            return bool(self.test(value))
        return not self.is_number or self.least <= value <= self.most


def _text(*allowed: str, required: bool = False) -> Column:
    return Column("string", required, allowed, rule=", ".join(allowed))


def _name() -> Column:
    return Column("string", True, test=layout.is_name, rule=layout.NAME_RULE)


def _count(least: int = 0, required: bool = False) -> Column:
    return Column("Int64", required, least=least, rule=f"{least} or more")


def _quantity() -> Column:
    return Column("Float64", least=0, rule="0 or more")


def _fraction() -> Column:
    return Column("Float64", least=0, most=1, rule="0 to 1")


RULES = {
    # identity
    "schema_version": Column("Int64", True, (SCHEMA_VERSION,), rule=str(SCHEMA_VERSION)),
    "session": _text(required=True),
    "run_id": _name(),
    "study": _name(),
    "variant": _text(*VARIANTS),
    "point": _name(),
    "machine": _name(),
    "chip": _text(),
    "source": _text("measured", "published", "digitised", "secondary", "derived", required=True),
    "reference": _text(),
    # topology
    "device": _text(*KINDS),
    "device_name": _text(),
    "device_count": _count(1),
    "num_threads": _count(1),
    "num_workers": _count(),
    # software
    "framework": _text(*FRAMEWORKS),
    "framework_version": _text(),
    "precision": _text(*PRECISIONS),
    "compiled": Column("boolean"),
    "commit": _text(),
    # work
    "model": _text(),
    "parameters": _count(),
    "dataset": _text(),
    "dataset_samples": _count(),
    "batch_size": _count(1),
    "image_size": _count(1),
    "settings": Column("object"),  # a dictionary; in a file, JSON with sorted keys
    # window
    "phase": _text(*PHASES, required=True),
    "repeat": _count(required=True),
    "epoch": _count(),
    "index": _count(required=True),
    "started_at": Column("string", test=UTC_TIME.fullmatch, rule="UTC time, ISO 8601, ending in Z"),
    # measures
    "samples": _count(),
    "seconds": _quantity(),
    "input_seconds": _quantity(),
    "samples_per_second": _quantity(),
    "flops_per_sample": _quantity(),
    "bytes_per_sample": _quantity(),
    "energy_joules": _quantity(),
    "energy_method": _text("nvml", "apple_ioreport", "rapl", "meter", "estimate_tdp"),
    "energy_boundary": _text("board", "soc", "package", "wall"),
    "idle_watts": _quantity(),
    "peak_memory_bytes": _count(),
    "memory_method": _text(),
    "page_faults": _count(),
    "utilisation": _fraction(),
    "loss": Column("Float64"),
    "accuracy": _fraction(),
    "accuracy_metric": _text("top1", "knn", "iou"),
    # outcome
    "status": _text(*STATUSES, required=True),
    "message": _text(),
}
COLUMNS = list(RULES)
DTYPES = {name: column.dtype for name, column in RULES.items()}
REQUIRED = [name for name, column in RULES.items() if column.required]  # a file may lack any other


@functools.cache
def whole():
    """Return the schema of a table as pandera's, which names every value that is wrong; its import takes a while."""
    import pandera.pandas as pandera

    def checks(column: Column) -> list[pandera.Check]:
        error = f"allowed: {column.rule}"
        if column.allowed:
            return [pandera.Check.isin(column.allowed, error=error)]
        if column.test:
            return [pandera.Check(column.allows, element_wise=True, error=error)]
        return [pandera.Check.in_range(column.least, column.most, error=error)] if column.is_number else []

    columns = {
        name: pandera.Column(
            object if column.dtype == "object" else column.dtype, checks(column), nullable=not column.required
        )
        for name, column in RULES.items()
    }
    return pandera.DataFrameSchema(columns, ordered=True)


def unknown_columns(rows: pandas.DataFrame) -> list[str]:
    """Return the columns of rows that this version of the schema does not have; they are kept, as text."""
    return [name for name in rows if name not in DTYPES]


def check_names(names: list[str], source: str) -> None:
    """Refuse a table that lacks a required column, or has one whose name is nearly that of a column.

    Args:
        names: the table's columns.
        source: what to call the table in an error.

    Raises:
        SchemaError: names the column, and the one that may have been meant.
    """
    missing = [name for name in REQUIRED if name not in names]
    for name in names:
        meant = None if name in DTYPES or len(name) > LONGEST_NAME else _near_miss(name)
        if meant:
            raise SchemaError(f"{source}, line 1: unknown column {name}; did you mean {meant}?")
        if len(name) > LONGEST_NAME:
            raise SchemaError(
                f"{source}, line 1: unknown column {name[:LONGEST_NAME]}... (cut); allowed: shorter names"
            )
    if missing:
        raise SchemaError(f"{source}, line 1: missing column {', '.join(sorted(missing))}")


def _near_miss(name: str) -> str | None:
    """Return the column that a name misspells. One that adds a word, as energy_joules_gpu does, is a new name."""
    words = set(filter(None, name.lower().split("_")))
    like = difflib.get_close_matches(name.lower(), COLUMNS, n=3, cutoff=NEAR_MISS)
    return next((column for column in like if not words > set(column.split("_"))), None)
