"""The columns of a row: what each may hold, declared once."""

import difflib

import pandas
import pandera.pandas as pandera

from benchbook.devices.frameworks import FRAMEWORKS
from benchbook.devices.kinds import KINDS

SCHEMA_VERSION = 2  # rises when the meaning of a column changes; a new column does not raise it
KEY = ["machine", "study", "point", "run_id", "phase", "repeat", "index"]

VARIANTS = ("reference", "controlled", "tuned")
TRAINED = ("ok", "diverged")  # statuses of points whose windows count
PHASES = ("setup", "compile", "warmup", "train", "evaluate", "total", "parity", "idle", "calibrate")
PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "amp_bf16", "amp_fp16")
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


class SchemaError(ValueError):
    """A row does not obey the schema; the message names file, line, column and what is allowed."""


def _text(*allowed: str, required: bool = False) -> pandera.Column:
    checks = [pandera.Check.isin(allowed, error=f"allowed: {', '.join(allowed)}")] if allowed else []
    return pandera.Column("string", checks, nullable=not required)


def _count(least: int = 0, required: bool = False) -> pandera.Column:
    return pandera.Column("Int64", pandera.Check.ge(least, error=f"allowed: {least} or more"), nullable=not required)


def _quantity() -> pandera.Column:
    return pandera.Column("Float64", pandera.Check.ge(0, error="allowed: 0 or more"), nullable=True)


def _fraction() -> pandera.Column:
    return pandera.Column("Float64", pandera.Check.in_range(0, 1, error="allowed: 0 to 1"), nullable=True)


SCHEMA = pandera.DataFrameSchema(
    {
        # identity
        "schema_version": pandera.Column("Int64", pandera.Check.eq(SCHEMA_VERSION, error=f"allowed: {SCHEMA_VERSION}")),
        "session": _text(required=True),
        "run_id": _text(required=True),
        "study": _text(required=True),
        "variant": _text(*VARIANTS),
        "point": _text(required=True),
        "machine": _text(required=True),
        "chip": _text(),
        "source": _text("measured", "published", "digitised", "secondary", "derived", required=True),
        "reference": _text(),
        # topology
        "device": _text(*KINDS),
        "device_name": _text(),
        "device_count": _count(1),
        "node_count": _count(1),
        "num_threads": _count(1),
        "num_workers": _count(),
        # software
        "framework": _text(*FRAMEWORKS),
        "framework_version": _text(),
        "precision": _text(*PRECISIONS),
        "compiled": pandera.Column("boolean", nullable=True),
        "commit": _text(),
        # work
        "model": _text(),
        "parameters": _count(),
        "dataset": _text(),
        "dataset_samples": _count(),
        "batch_size": _count(1),
        "image_size": _count(1),
        "settings": pandera.Column(object),  # a dictionary; in a file, JSON with sorted keys
        # window
        "phase": _text(*PHASES, required=True),
        "repeat": _count(required=True),
        "epoch": _count(),
        "index": _count(required=True),
        "started_at": pandera.Column(
            "string",
            pandera.Check.str_matches(
                r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$", error="allowed: UTC time, ISO 8601, ending in Z"
            ),
            nullable=True,
        ),
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
        "utilisation": _fraction(),
        "loss": pandera.Column("Float64", nullable=True),
        "accuracy": _fraction(),
        "accuracy_metric": _text("top1", "knn", "iou"),
        # outcome
        "status": _text(*STATUSES, required=True),
        "message": _text(),
    },
    ordered=True,
)
COLUMNS = list(SCHEMA.columns)
DTYPES = {name: str(column.dtype).partition("[")[0] for name, column in SCHEMA.columns.items()}
# A file may lack any other column.
REQUIRED = [name for name, column in SCHEMA.columns.items() if not column.nullable and name != "settings"]


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
