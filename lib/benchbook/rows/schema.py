"""The columns of a row: what each may hold, declared once, and rows checked by it.

pydantic alone judges values. A table comes to it column by column, each distinct value once.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated, Literal, get_args, get_type_hints

import numpy
import pandas
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    FiniteFloat,
    StrictBool,
    TypeAdapter,
    ValidationError,
    with_config,
)  # fmt: skip
from pydantic_core import PydanticCustomError, from_json
from typing_extensions import TypedDict

from benchbook.machine import layout
from benchbook.machine.kinds import KINDS
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.machine.precisions import PRECISIONS

SCHEMA_VERSION = 2  # rises when the meaning of a column changes; a new column does not raise it
KEY = ["machine", "study", "point", "run_id", "phase", "repeat", "index"]

TRAINED = ("ok", "diverged")  # statuses of points whose windows count
Variant = Literal["reference", "controlled", "tuned"]
Phase = Literal[
    "setup", "compile", "warmup", "confirm", "train", "evaluate", "total", "parity", "idle", "calibrate"
]  # fmt: skip
Status = Literal[
    "ok", "diverged", "out_of_memory", "crashed", "timeout", "interrupted", "unsupported", "unavailable"
]  # fmt: skip
VARIANTS = get_args(Variant)

# How alike (difflib's ratio) an unknown name and a column's are when one is taken for a misspelling of the other.
# No two columns of the schema are that much alike.
NEAR_MISS = 0.8
LONGEST_NAME = 60  # characters of a column's name
UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", re.ASCII)
RUN_TIME = re.compile(r"(\d{8}T\d{6})Z-", re.ASCII)  # the beginning of a run's name
YEARS = range(1970, 2262)  # the range of pandas' nanoseconds


class SchemaError(ValueError):
    """A row does not obey the schema; the message names file, line, column and what is allowed."""


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).year in YEARS
    except ValueError:
        return False


def _rule(is_right: Callable[[str], object], allowed: str) -> AfterValidator:
    """Return the check that a text is right, which says what is allowed where it is not."""

    def check(text: str) -> str:
        if not is_right(text):
            raise PydanticCustomError("rule", allowed)
        return text

    return AfterValidator(check)


def _parsed(value: object) -> object:
    try:
        return from_json(value) if isinstance(value, str) else value
    except ValueError as error:
        raise PydanticCustomError("json", "a JSON object") from error


Number = FiniteFloat | int  # unchanged: a whole number stays one
Text = str | None
Name = Annotated[str, _rule(layout.is_name, layout.NAME_RULE)]
RunName = Annotated[
    Name,
    _rule(
        lambda name: _is_time(named[1]) if (named := RUN_TIME.match(name)) else True,
        "a name that begins with a time in UTC, such as 20261120T120000Z-",
    ),
]
Time = Annotated[
    str,
    _rule(lambda text: UTC_TIME.fullmatch(text) and _is_time(text[:19]), "UTC time, ISO 8601, ending in Z"),
]
Given = Annotated[str, Field(min_length=1)]
Index = Annotated[int, Field(ge=0, le=2**63 - 1)]
Count = Index | None
Size = Annotated[int, Field(ge=1, le=2**63 - 1)] | None
Quantity = Annotated[float, Field(ge=0)] | None
Fraction = Annotated[float, Field(ge=0, le=1)] | None
Truth = Annotated[StrictBool, BeforeValidator(lambda value: {"True": True, "False": False}.get(str(value), value))]


def open_mapping(_name: str, **types: object) -> type:
    """Return the type of a mapping in which every key may be missing, and others may stand next to these."""
    return with_config(ConfigDict(extra="allow", strict=True))(TypedDict(_name, types, total=False))


_ANY_NUMBER, _SIDE = float | int | None, Literal["tuned", "reference"] | None  # a diverged loss is not a number
# The settings that are read from rows.
Settings = open_mapping(
    "Settings",
    # asked for; an article may count a part of an epoch
    **dict.fromkeys(("data_resident", "trainable"), bool | None),
    **dict.fromkeys(("image_size_over", "seed"), int | None),
    **dict.fromkeys(("epochs", "learning_rate", "sustained_minutes", "width"), Number | None),
    **dict.fromkeys(("optimizer", "weights"), Text),
    # what it costs; searched, compared; calibrated
    **dict.fromkeys(("electricity_per_kwh", "price_per_hour", "purchase_price"), Number | None),
    **dict.fromkeys(("promised", "search_seconds", "copy_bytes", "matrix_size"), Number | None),
    **dict.fromkeys(("chosen", "side"), _SIDE),
    tried=Text,
    # parity
    **dict.fromkeys(("num_parity_steps", "step"), int | None),
    **dict.fromkeys(("gradient_cosine", "gradient_norm_ratio", "worst_cosine", "worst_norm_ratio"), _ANY_NUMBER),
    **dict.fromkeys(("reference_loss", "same_weights_loss", "statistics_error", "update_error"), _ANY_NUMBER),
    **dict.fromkeys(("statistics_layer", "update_layer", "worst_cosine_layer", "worst_norm_ratio_layer"), str),
    # parity after the windows: what was counted, see `benchbook.measuring.audit`
    audited_samples=int | None,  # as the windows count them
    audited_images=int | None,  # in the same batches
    audited_distinct=int | None,
    audited_odd_batches=int | None,  # full ones of another size than batch_size
    audited_epoch=int | None,  # samples in an epoch, where its end was seen
    audited_unused=int | None,  # images of a batch whose exchange leaves its loss as it was
    audited_tests=int | None,
    audited_trained_tests=int | None,  # test images that training saw
    evaluation_error=_ANY_NUMBER,
    # published
    images_seen_in_epoch=int | None,
    reading=Text,
    rounding=dict[str, Number],
)


class Row(BaseModel):
    """One window, or one failure. A column without a default is required; None is missing."""

    model_config = ConfigDict(extra="forbid")
    # identity
    schema_version: Annotated[int, Field(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)]
    session: Given
    run_id: RunName
    study: Name
    variant: Variant | None = None
    point: Name
    machine: Name
    chip: Text = None
    source: Literal["measured", "published", "digitised", "secondary", "derived"]
    reference: Text = None
    # topology
    device: Literal[*KINDS] | None = None
    device_name: Text = None
    device_count: Size = None
    num_threads: Size = None
    num_workers: Count = None
    # software
    framework: Literal[*FRAMEWORKS] | None = None
    framework_version: Text = None
    precision: Literal[*PRECISIONS] | None = None
    compiled: Truth | None = None
    commit: Text = None
    # work
    model: Text = None
    parameters: Count = None
    dataset: Text = None
    dataset_samples: Count = None
    batch_size: Size = None
    image_size: Size = None
    sequence_length: Size = None  # tokens of a sample that is a sequence
    settings: Annotated[Settings, BeforeValidator(_parsed)] | None = None  # in a file, JSON with sorted keys
    # window
    phase: Phase
    repeat: Index
    epoch: Count = None
    index: Index
    started_at: Time | None = None
    # measures
    samples: Count = None
    # The optimiser's own count of the window's steps, read outside the clock: samples = steps x batch_size where all
    # batches are full. A step that a scaler leaves out, because gradients overflowed, is not counted.
    steps: Count = None
    seconds: Quantity = None
    input_seconds: Quantity = None
    samples_per_second: Quantity = None
    flops_per_sample: Quantity = None
    bytes_per_sample: Quantity = None
    energy_joules: Quantity = None
    energy_method: Literal["nvml", "nvml_power", "apple_ioreport", "rapl", "meter", "estimate_tdp"] | None = None
    energy_boundary: Literal["board", "soc", "package", "wall"] | None = None
    idle_watts: Quantity = None
    peak_memory_bytes: Count = None
    memory_method: Text = None
    page_faults: Count = None
    utilisation: Fraction = None
    loss: Annotated[float, Field(ge=-math.inf)] | None = None  # infinite, or missing where it is no number
    accuracy: Fraction = None
    accuracy_metric: Literal["top1", "knn", "iou"] | None = None
    # outcome
    status: Status
    message: Text = None


HINTS = {name: get_type_hints(Row, include_extras=True)[name] for name in Row.model_fields}
COLUMNS = list(HINTS)
REQUIRED = [name for name, field in Row.model_fields.items() if field.is_required()]  # a file may lack any other


def _dtype(hint: object) -> str:
    """Return how pandas calls the type of a column; settings are dictionaries."""
    for _ in range(2):  # the first type of a union, and then the one that is annotated
        hint = (*get_args(hint), hint)[0]
    return {int: "Int64", float: "Float64", bool: "boolean", Settings: "object"}.get(hint, "string")


DTYPES = {name: _dtype(hint) for name, hint in HINTS.items()}
LONGEST_QUOTED = 80  # characters of a value in a message
MOST_LISTED = 5
DISTINCT = {name: TypeAdapter(Annotated[list[hint], FailFast()]) for name, hint in HINTS.items()}
BARE = "energy_joules without energy_method and energy_boundary"
UNION = ("float", "int")  # pydantic adds this to the location of a value that is neither


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
        written = {name: value if value is None else cell(value) for name, value in row.items()}
        validate(pandas.DataFrame([dict.fromkeys(COLUMNS) | written], dtype="string"), source)


def cell(value: object) -> str:
    """Return a value as written to a file: settings are JSON with sorted keys."""
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


def check_names(names: list[str], source: str) -> None:
    """Refuse a table that lacks a required column, or has one whose name is nearly that of a column.

    Args:
        names: the table's columns.
        source: what to call the table in an error.

    Raises:
        SchemaError: names the column, and the one that may have been meant.
    """
    for name in (name for name in names if name not in DTYPES):
        if len(name) > LONGEST_NAME:
            raise SchemaError(
                f"{source}, line 1: unknown column {name[:LONGEST_NAME]}... (cut); allowed: shorter names"
            )
        words = set(filter(None, name.lower().split("_")))
        for meant in difflib.get_close_matches(name.lower(), COLUMNS, cutoff=NEAR_MISS):
            if not words > set(meant.split("_")):  # a name that adds a word, as energy_joules_gpu does, is a new name
                raise SchemaError(f"{source}, line 1: unknown column {name}; did you mean {meant}?")
    if missing := [name for name in REQUIRED if name not in names]:
        raise SchemaError(f"{source}, line 1: missing column {', '.join(sorted(missing))}")
