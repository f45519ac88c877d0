"""The row schema: append one row at a time, read, validate, merge.

One CSV line is one window, or one failure. Units stand in the names; missing is empty.
"""

import csv
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path

import pandas
import pandera.pandas as pandera

from benchbook.devices.kinds import KINDS

SCHEMA_VERSION = 1
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


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


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
        "framework": _text("torch", "tensorflow", "jax"),
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
        "settings": pandera.Column(
            "string",
            pandera.Check(_is_json_object, element_wise=True, error="allowed: a JSON object"),
            nullable=True,
        ),
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
    strict=True,
    ordered=True,
)
COLUMNS = list(SCHEMA.columns)
DTYPES = {name: str(column.dtype).partition("[")[0] for name, column in SCHEMA.columns.items()}


def validate(rows: pandas.DataFrame, source: str = "rows") -> pandas.DataFrame:
    """Return the rows with the schema's types.

    Args:
        rows: one row per window, index 0 being the line after the header.
        source: what to call them in an error.

    Raises:
        SchemaError: a column is missing or unknown, a value is not allowed, or a key occurs twice.
    """
    for kind, names in (("unknown", set(rows) - set(COLUMNS)), ("missing", set(COLUMNS) - set(rows))):
        if names:
            raise SchemaError(f"{source}, line 1: {kind} column {', '.join(sorted(names))}")
    typed = rows[COLUMNS].copy()
    for name, dtype in DTYPES.items():
        typed[name] = _typed(typed[name], dtype, source)
    try:
        SCHEMA.validate(typed, lazy=True)
    except pandera.errors.SchemaErrors as error:
        raise SchemaError(_describe(error.failure_cases, source)) from error
    twice = typed.duplicated(KEY)
    if twice.any():
        line = int(typed.index[twice][0]) + 2
        raise SchemaError(f"{source}, line {line}: the key {', '.join(KEY)} occurs a second time")
    bare = typed["energy_joules"].notna() & typed[["energy_method", "energy_boundary"]].isna().any(axis=1)
    if bare.any():
        line = int(typed.index[bare][0]) + 2
        raise SchemaError(f"{source}, line {line}: energy_joules without energy_method and energy_boundary")
    return typed


def read(path: Path) -> pandas.DataFrame:
    """Return one file's rows.

    Raises:
        SchemaError: see `validate`; the message names file and line.
    """
    return validate(_strings(path), str(path))


def merge(paths: Iterable[Path]) -> pandas.DataFrame:
    """Return all rows of all files, by point and run and then as written; the folder a file lies in does not matter.

    Raises:
        SchemaError: a file breaks the schema, or two files hold the same row.
    """
    texts = {path: _strings(path) for path in sorted(paths)}
    try:
        # All at once: one check of a hundred files takes as long as that of one.
        if any(set(text) != set(COLUMNS) for text in texts.values()):
            raise SchemaError("a column is missing or unknown")
        none = pandas.DataFrame(columns=COLUMNS, dtype="string")
        merged = validate(pandas.concat([none, *texts.values()], ignore_index=True))
    except SchemaError:
        _find_fault(texts)
        raise
    return merged.sort_values(["machine", "study", "point", "run_id"], kind="stable", ignore_index=True)


def _strings(path: Path) -> pandas.DataFrame:
    """Return one file's rows, every value as text."""
    try:
        return pandas.read_csv(path, dtype="string", keep_default_na=False, na_values=[""])
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path}: not a table of rows ({error})") from error


def _find_fault(texts: dict[Path, pandas.DataFrame]) -> None:
    """Raise what is wrong with one of the files, or with two of them."""
    frames = {path: validate(text, str(path)) for path, text in texts.items()}
    together = pandas.concat(frames.values(), ignore_index=True)
    twice = together.duplicated(KEY)
    if twice.any():
        run_id = together.loc[twice, "run_id"].iloc[0]
        holders = [str(path) for path, frame in frames.items() if (frame["run_id"] == run_id).any()]
        raise SchemaError(f"run {run_id} stands in more than one file: {', '.join(holders)}")


def without_refusals(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows without what a device refused, or did wrong, where it was only tried: an answer, no failure."""
    tried = (rows["phase"] == "calibrate") & rows["model"].notna()
    refused = tried & rows["status"].isin(["unsupported", "diverged"])
    return rows[~refused]


def settings(text: str | None) -> dict:
    """Return a row's settings; of a row that has none, an empty dictionary."""
    return json.loads(text) if isinstance(text, str) else {}


def find(folder: Path) -> list[Path]:
    """Return every CSV of rows below a folder, or the file itself."""
    return [folder] if folder.is_file() else sorted(folder.rglob("*.csv"))


def append(path: Path, row: dict) -> None:
    """Append one row to a file, on disk before this returns: a power cut loses at most the window under way.

    Args:
        path: the run's CSV; it is begun with a header.
        row: columns by name; what is left out is missing. Text is kept to one line.

    Raises:
        SchemaError: an unknown column, or a value that the schema does not allow.
    """
    row = {name: _plain(value) for name, value in row.items()}
    unknown = set(row) - set(COLUMNS)
    if unknown:
        raise SchemaError(f"{path.name}: unknown column {', '.join(sorted(unknown))}")
    validate(pandas.DataFrame([{name: row.get(name) for name in COLUMNS}]), path.name)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if not path.exists() or path.stat().st_size == 0:
        writer.writerow(COLUMNS)
    writer.writerow(["" if row.get(name) is None else row[name] for name in COLUMNS])
    with path.open("a", encoding="utf-8") as file:
        file.write(buffer.getvalue())
        file.flush()
        os.fsync(file.fileno())


def cut_torn_line(path: Path) -> bool:
    """Cut what a kill left of a half-written last line; return whether there was one."""
    content = path.read_bytes() if path.exists() else b""
    if not content or content.endswith(b"\n"):
        return False
    os.truncate(path, content.rfind(b"\n") + 1)
    return True


def _plain(value):
    if pandas.api.types.is_scalar(value) and pandas.isna(value):
        return None
    return " ".join(value.split()) if isinstance(value, str) else value


def _typed(values: pandas.Series, dtype: str, source: str) -> pandas.Series:
    if dtype == "string":
        return values.astype(dtype)
    if dtype == "boolean":
        typed = values.map({"True": True, "False": False, True: True, False: False}, na_action="ignore")
    else:
        typed = pandas.to_numeric(values, errors="coerce")
    if dtype == "Int64":
        typed = typed.where(typed % 1 == 0)
    wrong = typed.isna() & values.notna()
    if wrong.any():
        line, value = int(wrong.idxmax()) + 2, values[wrong].iloc[0]
        allowed = {"Int64": "whole numbers", "Float64": "numbers", "boolean": "True, False"}[dtype]
        raise SchemaError(f"{source}, line {line}: column {values.name} is {value!r}; allowed: {allowed}")
    if dtype == "Float64" and values.dtype == "string":
        typed = values.map(float, na_action="ignore")  # pandas 3.0's to_numeric is off in the last bit
    return typed.astype(dtype)


def _describe(failures: pandas.DataFrame, source: str) -> str:
    first = failures.iloc[0]
    line = f", line {int(first['index']) + 2}" if pandas.notna(first["index"]) else ""
    if pandas.isna(first["failure_case"]):
        return f"{source}{line}: column {first['column']} is empty; a value is needed"
    value = repr(getattr(first["failure_case"], "item", lambda: first["failure_case"])())
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return f"{source}{line}: column {first['column']} is {value}; {first['check']}{more}"
