"""Values against pydantic's types: tables of rows, one row, and the sentence for what is wrong.

pydantic alone judges values. A table comes to it column by column, each distinct value once.
"""

import json
import re
from collections.abc import Iterable
from typing import Annotated

import numpy
import pandas
from pydantic import FailFast, TypeAdapter, ValidationError

from benchbook.rows.schema import (
    COLUMNS,
    DTYPES,
    HINTS,
    KEY,
    REQUIRED,
    SCHEMA_VERSION,
    Row,
    SchemaError,
    check_names,
)

LONGEST_QUOTED = 80  # characters of a value in a message
MOST_LISTED = 5
DISTINCT = {name: TypeAdapter(Annotated[list[hint], FailFast()]) for name, hint in HINTS.items()}
BARE = "energy_joules without energy_method and energy_boundary"
UNION = ("float", "int")  # what pydantic adds to the place of a value that is neither


def validate(rows: pandas.DataFrame, source: str = "rows") -> pandas.DataFrame:
    """Return the rows with the schema's types, checked.

    Args:
        rows: one row per window, index 0 being the line after the header.
        source: what to call them in an error.

    Raises:
        SchemaError: rows of another schema version; a required column is missing, one is misspelt, a value is not
            allowed, or a key occurs twice.
    """
    versions = pandas.to_numeric(rows.get("schema_version", pandas.Series(dtype="string")), errors="coerce").dropna()
    other = versions[versions != SCHEMA_VERSION]  # before all else: their columns may differ, or mean another thing
    if len(other):
        found = f"column schema_version is {other.iloc[0]:g}; allowed: {SCHEMA_VERSION}"
        raise SchemaError(f"{source}, line {int(other.index[0]) + 2}: {found}")
    typed = cast(rows, source)
    told = typed["energy_joules"].isna() | typed[["energy_method", "energy_boundary"]].notna().all(axis=1)
    for wrong, fault in ((typed.duplicated(KEY), f"the key {', '.join(KEY)} occurs a second time"), (~told, BARE)):
        if wrong.any():
            raise SchemaError(f"{source}, line {int(typed.index[wrong][0]) + 2}: {fault}")
    return typed


def cast(rows: pandas.DataFrame, source: str = "rows") -> pandas.DataFrame:
    """Return the rows with the schema's columns and types; of each row, every value is checked by itself.

    A column that is missing is empty; one that the schema does not have is kept, as text, after the others. Settings
    become dictionaries, empty where a row has none; rows of equal settings may share one.

    Raises:
        SchemaError: a required column is missing, one is misspelt, or a value is not allowed; it names the first line
            with a fault.
    """
    check_names(list(rows), source)
    empty, typed, faults = pandas.Series(pandas.NA, rows.index, dtype="string"), {}, []
    for name, dtype in DTYPES.items():
        codes, values = _distinct(rows.get(name, empty), dtype)
        if name in REQUIRED and len(missing := numpy.flatnonzero(codes < 0)):
            faults.append((missing[0], f"column {name} is empty; a value is needed"))
            continue
        try:
            values = DISTINCT[name].validate_python(values)
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            place, *inner = detail["loc"]
            faults.append((numpy.argmax(codes == place), f"column {complaint(detail, [name, *inner])}"))
            continue
        if dtype == "object":
            typed[name] = numpy.array([*values, {}], dtype=object)[codes]  # the last one where a row has none
        else:
            typed[name] = pandas.array(values, dtype=dtype).take(codes, allow_fill=True)
    if faults:
        place, fault = min(faults, key=lambda each: each[0])
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise SchemaError(f"{source}, line {int(rows.index[place]) + 2}: {fault}{more}")
    others = {name: rows[name].astype("string") for name in unknown_columns(rows)}
    return pandas.DataFrame(typed | others, index=rows.index)


def unknown_columns(rows: pandas.DataFrame) -> list[str]:
    """Return the columns of rows that this version of the schema does not have; they are kept, as text."""
    return [name for name in rows if name not in DTYPES]


def _distinct(values: pandas.Series, dtype: str) -> tuple[numpy.ndarray, list]:
    """Return the number of each row's value, -1 where there is none, and the distinct values by number."""
    if dtype == "object":  # dictionaries are told apart by identity
        keys = [value if isinstance(value, str) else id(value) for value in values]
        there = numpy.array([isinstance(value, dict | list) or not pandas.isna(value) for value in values], dtype=bool)
        keys = pandas.Series(keys, dtype=object).where(there)
        codes, _ = pandas.factorize(keys)
        firsts = numpy.unique(codes, return_index=True)[1][int(not there.all()) :]
        return codes, [values.iloc[first] for first in firsts]
    codes, values = pandas.factorize(values.astype("string") if dtype == "string" else values)
    return codes, values.tolist()


def check_row(row: dict, source: str) -> None:
    """Refuse a row that the schema does not allow; the same verdict as `validate`, in a hundredth of its time.

    Args:
        row: columns by name; what is missing is left out, or None.
        source: what to call it in an error.

    Raises:
        SchemaError: as `validate` raises it.
    """
    try:
        checked = Row.model_validate(row, strict=True)
        bare = checked.energy_joules is not None and None in (checked.energy_method, checked.energy_boundary)
    except ValidationError:
        bare = True
    if bare:  # what is not plainly right is judged as a file would have it
        written = {name: value if value is None else as_text(value) for name, value in row.items()}
        validate(pandas.DataFrame([dict.fromkeys(COLUMNS) | written], dtype="string"), source)


def as_text(value: object) -> str:
    """Return a value as a file has it: settings as JSON with sorted keys."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else str(value)


def complaint(detail: dict, place: Iterable[str | int] | None = None) -> str:
    """Return what is wrong with a value, and what is allowed.

    Args:
        detail: one of a ValidationError's errors.
        place: the keys and numbers under which the value stands, if not those of the error.
    """
    keys = [key for key in (detail["loc"] if place is None else place) if key not in UNION]
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".") or "the whole"
    if detail["type"] in ("missing", "extra_forbidden"):
        return f"{path} is {'missing' if detail['type'] == 'missing' else 'unknown'}"
    rule = re.sub("^(Input|List) should (be|have) |, (unable|got) .*", "", detail["msg"])
    return f"{path} is {quoted(detail['input'])}; allowed: {rule}"


def quoted(value: object) -> str:
    """Return a value as a message quotes it: a long one is cut."""
    return _cut(repr(value[: LONGEST_QUOTED + 1] if isinstance(value, str) else value))


def listed(values: Iterable[object]) -> str:
    """Return values as a message lists them, in order: each one cut, and of many the first few."""
    ordered = sorted(str(value) for value in values)
    more = f" and {len(ordered) - MOST_LISTED} more" if len(ordered) > MOST_LISTED else ""
    return ", ".join(map(_cut, ordered[:MOST_LISTED])) + more


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTED else f"{text[:LONGEST_QUOTED]}... (cut)"
