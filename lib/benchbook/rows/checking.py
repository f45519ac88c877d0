"""Rows given the schema's types, and held against its rules: whole tables, and one row as it is written."""

import json
import math
import numbers
from collections.abc import Callable, Iterable

import pandas

from benchbook.rows.schema import (
    COLUMNS,
    DTYPES,
    KEY,
    RULES,
    SCHEMA_VERSION,
    Column,
    SchemaError,
    check_names,
    unknown_columns,
    whole,
)

LONGEST_QUOTED = 80  # characters of a value in a message
MOST_LISTED = 5
MANY_ROWS, FEW_ROWS = 5000, 1000
LARGEST_EXACT = 2**53  # whole numbers below it are the same as floats


def validate(rows: pandas.DataFrame, source: str = "rows") -> pandas.DataFrame:
    """Return the rows with the schema's types, checked.

    Args:
        rows: one row per window, index 0 being the line after the header.
        source: what to call them in an error.

    Raises:
        SchemaError: rows of another schema version; a required column is missing, one is misspelt, a value is not
            allowed, or a key occurs twice.
    """
    _check_version(rows, source)
    if len(rows) > MANY_ROWS:  # a list of the faults of each row would take many times the table's memory
        validate(rows.iloc[:FEW_ROWS], source)
    typed = cast(rows, source)
    if not all(_is_sound(typed[name], column) for name, column in RULES.items()):
        _name_faults(typed, source)
    repeated = typed.duplicated(KEY)
    if repeated.any():
        line = int(typed.index[repeated][0]) + 2
        raise SchemaError(f"{source}, line {line}: the key {', '.join(KEY)} occurs a second time")
    bare = typed["energy_joules"].notna() & typed[["energy_method", "energy_boundary"]].isna().any(axis=1)
    if bare.any():
        line = int(typed.index[bare][0]) + 2
        raise SchemaError(f"{source}, line {line}: energy_joules without energy_method and energy_boundary")
    return typed


def _check_version(rows: pandas.DataFrame, source: str) -> None:
    """Refuse rows of another version before anything else: their columns may differ, or mean something else."""
    versions = rows.get("schema_version", pandas.Series(dtype="string"))
    versions = pandas.to_numeric(versions, errors="coerce").dropna()
    other = versions[versions != SCHEMA_VERSION]
    if len(other):
        line, version = int(other.index[0]) + 2, other.iloc[0]
        raise SchemaError(f"{source}, line {line}: column schema_version is {version:g}; allowed: {SCHEMA_VERSION}")


def cast(rows: pandas.DataFrame, source: str = "rows") -> pandas.DataFrame:
    """Return the rows with the schema's columns and types; nothing else of the values is checked.

    A column that is missing is empty; one that the schema does not have is kept, as text, after the others. Settings
    become dictionaries, empty where a row has none; rows of equal settings may share one.

    Raises:
        SchemaError: a required column is missing, one is misspelt, or a value is not of its column's type.
    """
    check_names(list(rows), source)
    empty = pandas.Series(pandas.NA, rows.index, dtype="string")
    typed = {name: _typed(rows.get(name, empty).rename(name), dtype, source) for name, dtype in DTYPES.items()}
    others = {name: rows[name].astype("string") for name in unknown_columns(rows)}
    return pandas.DataFrame(typed | others, index=rows.index)


def check_row(row: dict, source: str) -> None:
    """Refuse a row that the schema does not allow; the same verdict as `validate`, in a hundredth of its time.

    Args:
        row: columns by name; what is missing is left out, or None.
        source: what to call it in an error.

    Raises:
        SchemaError: as `validate` raises it.
    """
    complete = all(_is_good(row.get(name), column) for name, column in RULES.items())
    bare = row.get("energy_joules") is not None and None in (row.get("energy_method"), row.get("energy_boundary"))
    if not complete or bare or not row.keys() <= DTYPES.keys():
        validate(pandas.DataFrame([dict.fromkeys(COLUMNS) | row]), source)


def _is_sound(values: pandas.Series, column: Column) -> bool:
    """Return whether all values of a column, which are of its type, are surely allowed."""
    there = values.dropna()
    if column.required and len(there) < len(values):
        return False
    if column.dtype == "object" or there.empty:
        return True
    return all(map(column.allows, (there.min(), there.max()) if column.is_number else there.unique()))


def _name_faults(typed: pandas.DataFrame, source: str) -> None:
    """Let pandera, whose import takes a third of a second, find what is wrong with a table, and where.

    Raises:
        SchemaError: names line, column, value and what is allowed.
    """
    from pandera.errors import SchemaErrors

    try:
        whole().validate(typed[COLUMNS], lazy=True)
    except SchemaErrors as error:
        raise SchemaError(_describe(error.failure_cases, source)) from error


def _is_good(value: object, column: Column) -> bool:
    """Return whether a value is surely allowed; where it is not, `validate` has the last word."""
    return not column.required if value is None else TYPES[column.dtype](value) and column.allows(value)


def _is_whole(value: object) -> bool:
    whole = isinstance(value, numbers.Integral) or (isinstance(value, numbers.Real) and float(value).is_integer())
    return whole and not isinstance(value, bool) and abs(value) < LARGEST_EXACT


TYPES: dict[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "Int64": _is_whole,
    "Float64": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value),
    "object": lambda value: isinstance(value, dict),
}


def _typed(values: pandas.Series, dtype: str, source: str) -> pandas.Series:
    if dtype == "object":
        return _dictionaries(values, source)
    if dtype == "string" or values.isna().all():
        return values.astype(dtype)
    if dtype == "boolean":
        typed = values.map({"True": True, "False": False, True: True, False: False}, na_action="ignore")
    else:
        typed = pandas.to_numeric(values, errors="coerce")
    if dtype == "Int64":
        typed = typed.where(typed % 1 == 0)
    wrong = typed.isna() & values.notna()
    if wrong.any():
        allowed = {"Int64": "whole numbers", "Float64": "numbers", "boolean": "True, False"}[dtype]
        raise _wrong_value(values, int(wrong.argmax()), allowed, source)
    if dtype == "Float64" and values.dtype == "string":
        typed = values.map(float, na_action="ignore")  # pandas 3.0's to_numeric is off in the last bit
    return typed.astype(dtype)


def _dictionaries(values: pandas.Series, source: str) -> pandas.Series:
    """Return settings as dictionaries; each text is parsed once."""
    parsed: dict[str, object] = {}
    dictionaries = []
    for place, value in enumerate(values):
        if isinstance(value, str):
            if value not in parsed:
                parsed[value] = _parse(value)
            value = parsed[value]
        elif not isinstance(value, dict) and pandas.isna(value):
            value = {}
        if not isinstance(value, dict):
            raise _wrong_value(values, place, "a JSON object", source)
        dictionaries.append(value)
    return pandas.Series(dictionaries, values.index, dtype=object)


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _wrong_value(values: pandas.Series, place: int, allowed: str, source: str) -> SchemaError:
    line, value = int(values.index[place]) + 2, values.iloc[place]
    return SchemaError(f"{source}, line {line}: column {values.name} is {quoted(value)}; allowed: {allowed}")


def quoted(value: object) -> str:
    """Return a value as a message quotes it: a long one is cut."""
    text = repr(value[: LONGEST_QUOTED + 1] if isinstance(value, str) else value)
    return text if len(text) <= LONGEST_QUOTED else f"{text[:LONGEST_QUOTED]}... (cut)"


def listed(values: Iterable[object]) -> str:
    """Return values as a message lists them, in order: each one cut, and of many the first few."""
    ordered = sorted(str(value) for value in values)
    shown = [
        value if len(value) <= LONGEST_QUOTED else f"{value[:LONGEST_QUOTED]}... (cut)"
        for value in ordered[:MOST_LISTED]
    ]
    return ", ".join(shown) + (f" and {len(ordered) - MOST_LISTED} more" if len(ordered) > MOST_LISTED else "")


def _describe(failures: pandas.DataFrame, source: str) -> str:
    first = failures.iloc[0]
    line = f", line {int(first['index']) + 2}" if pandas.notna(first["index"]) else ""
    if pandas.isna(first["failure_case"]):
        return f"{source}{line}: column {first['column']} is empty; a value is needed"
    value = quoted(getattr(first["failure_case"], "item", lambda: first["failure_case"])())
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return f"{source}{line}: column {first['column']} is {value}; {first['check']}{more}"
