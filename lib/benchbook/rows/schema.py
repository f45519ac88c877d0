"""The schema of a row: its columns with their allowed values, and the functions that check rows.

pydantic alone checks values. A table is checked column by column, each distinct value once.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import numpy
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
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

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 2  # rises when the meaning of a column changes; a new column does not raise it
KEY = ["machine", "study", "point", "run_id", "phase", "repeat", "index"]

TRAINED = ("ok", "diverged")  # the statuses of windows that count
Variant = Literal["reference", "controlled", "tuned"]
Phase = Literal[
    "setup", "compile", "warmup", "confirm", "train", "evaluate", "total", "parity", "idle", "calibrate"
]  # fmt: skip
Status = Literal[
    "ok", "diverged", "out_of_memory", "crashed", "timeout", "interrupted", "unsupported", "unavailable"
]  # fmt: skip
VARIANTS = get_args(Variant)

UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z", re.ASCII)
RUN_TIME = re.compile(r"(\d{8}T\d{6})Z-", re.ASCII)  # the beginning of a run's id
RUN_ID = re.compile(f"{RUN_TIME.pattern}[0-9a-f]{{8}}", re.ASCII)
YEARS = range(1970, 2262)  # the range of pandas' nanoseconds


class SchemaError(ValueError):
    """A row breaks the schema; the message names the file, line, column, value and what is
    allowed."""


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(re.sub("60$", "59", text)).year in YEARS  # a leap second
    except ValueError:
        return False


def _rule(is_allowed: Callable[[Any], object], allowed: str) -> AfterValidator:
    """Return a validator of a value; its error says what is allowed."""

    def check(value: Any) -> Any:
        if not is_allowed(value):
            raise PydanticCustomError("rule", allowed)
        return value

    return AfterValidator(check)


def _parse_json(value: object) -> object:
    try:
        return from_json(value) if isinstance(value, str) else value
    except ValueError as error:
        raise PydanticCustomError("json", "a JSON object") from error


# Bounds of numbers and counts: products and ratios of several remain numbers.
LEAST, MOST, MOST_COUNT = 1e-12, 1e18, 10**16
Number = (
    Annotated[float, Field(ge=-MOST, le=MOST)] | Annotated[int, Field(ge=-(2**63), lt=2**63)]
)  # an int stays one
Text = str | None
Name = Annotated[str, _rule(layout.is_name, layout.NAME_RULE)]
RunName = Annotated[
    Name,
    _rule(
        lambda name: _is_time(match[1]) if (match := RUN_TIME.match(name)) else True,
        "a name that begins with a time in UTC, such as 20261120T120000Z-",
    ),
]
Time = Annotated[
    str,
    _rule(
        lambda text: UTC_TIME.fullmatch(text) and _is_time(text[:19]),
        "UTC time, ISO 8601, ending in Z",
    ),
]
NonEmpty = Annotated[str, Field(min_length=1)]
Index = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Count = Index | None
Size = Annotated[int, Field(ge=1, le=MOST_COUNT)] | None
Quantity = (
    Annotated[
        float,
        _rule(lambda value: value == 0 or LEAST <= value <= MOST, f"0, or {LEAST:g} to {MOST:g}"),
    ]
    | None
)
Fraction = Annotated[float, Field(ge=0, le=1)] | None
Flag = Annotated[
    StrictBool, BeforeValidator(lambda value: {"True": True, "False": False}.get(str(value), value))
]


def open_mapping(_name: str, _by_type: dict[object, str] | None = None, **types: object) -> type:
    """Return the type of a mapping that may lack any of these keys and may have others.

    Args:
        _name: of the type.
        _by_type: names of keys, separated by blanks, by the type of their values.
        types: the types of further keys.
    """
    types |= {name: hint for hint, names in (_by_type or {}).items() for name in names.split()}
    return with_config(ConfigDict(extra="allow", strict=True))(TypedDict(_name, types, total=False))


# The settings that this library reads from rows.
Settings = open_mapping(
    "Settings",
    {
        bool | None: "data_resident trainable",
        # images_seen_in_epoch: published
        int
        | None: "image_size_over seed num_bank_images num_parity_steps step images_seen_in_epoch",
        # An article may train a fraction of an epoch; then search, confirmation and calibration.
        Number | None: """epochs learning_rate sustained_minutes width electricity_per_kwh
            price_per_hour purchase_price promised search_seconds busy copy_bytes matrix_size""",
        Literal["tuned", "reference"] | None: "chosen side",
        Text: "optimizer weights tried reading",
        # Of parity; a diverged loss may be NaN.
        float | int | None: """gradient_cosine gradient_norm_ratio worst_cosine worst_norm_ratio
            reference_loss same_weights_loss statistics_error update_error last_loss
            last_reference_loss""",
        str: "statistics_layer update_layer worst_cosine_layer worst_norm_ratio_layer",
    },
    replaced=dict[str, str],  # what was unavailable: by its name, what took its place
    rounding=dict[str, Number],
)


class Row(BaseModel):
    """One window, or one failure. A column without a default is required; None means missing."""

    model_config = ConfigDict(extra="forbid")
    # identity
    schema_version: Annotated[int, Field(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)]
    session: NonEmpty
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
    compiled: Flag | None = None
    commit: Text = None
    # work
    model: Text = None
    parameters: Count = None
    dataset: Text = None
    dataset_samples: Count = None
    batch_size: Size = None
    image_size: Size = None
    sequence_length: Size = None  # tokens of a sample that is a sequence
    settings: Annotated[Settings, BeforeValidator(_parse_json)] | None = (
        None  # in a file, JSON with sorted keys
    )
    # window
    phase: Phase
    repeat: Index
    epoch: Count = None
    index: Index
    started_at: Time | None = None
    # measures
    samples: Count = None
    # The optimiser's own count of the window's steps, read outside the clock. If all batches are
    # full, samples = steps x batch_size. A step that a loss scaler skips, because gradients
    # overflowed, does not count.
    steps: Count = None
    seconds: Quantity = None
    input_seconds: Quantity = None
    samples_per_second: Quantity = None
    flops_per_sample: Quantity = None
    bytes_per_sample: Quantity = None
    energy_joules: Quantity = None
    energy_method: Literal["nvml", "amdsmi", "apple_ioreport", "rapl"] | None = None
    energy_boundary: Literal["board", "soc", "package", "wall"] | None = None
    idle_watts: Quantity = None
    peak_memory_bytes: Count = None
    memory_method: Text = None
    page_faults: Count = None
    loss: Annotated[float, Field(ge=-math.inf)] | None = (
        None  # may be infinite; NaN is written as missing
    )
    accuracy: Fraction = None
    accuracy_metric: Literal["top1", "knn", "iou"] | None = None
    # outcome
    status: Status
    message: Text = None


HINTS = {name: get_type_hints(Row, include_extras=True)[name] for name in Row.model_fields}
COLUMNS = list(HINTS)
REQUIRED = [
    name for name, field in Row.model_fields.items() if field.is_required()
]  # a file may lack any other


def _dtype(hint: object) -> str:
    """Return pandas' name of a column's type; settings are dictionaries."""
    for _ in range(2):  # the first type of a union, then the type inside Annotated
        hint = (*get_args(hint), hint)[0]
    return {int: "Int64", float: "Float64", bool: "boolean", Settings: "object"}.get(hint, "string")


DTYPES = {name: _dtype(hint) for name, hint in HINTS.items()}
MAX_QUOTED = 80  # characters of a value in a message
MAX_LISTED = 5  # values in a message
INCOMPLETE_ENERGY = "energy_joules without energy_method and energy_boundary"
UNION_MEMBERS = (
    "float",
    "int",
    "constrained-float",
    "constrained-int",
)  # pydantic adds them to a location


def validate(rows: pandas.DataFrame, source: str = "rows") -> pandas.DataFrame:
    """Return the rows with the schema's types, after all checks.

    Args:
        rows: one row per window, as texts; index 0 is the line after the header.
        source: the name of the rows in an error.

    Raises:
        SchemaError: a row has another schema version, a required column is missing, a value is
        not allowed, energy
            lacks its method or boundary, or a key occurs twice.
    """
    typed = cast(rows, source)
    incomplete = typed["energy_joules"].notna() & typed[
        ["energy_method", "energy_boundary"]
    ].isna().any(axis=1)
    faults = {
        f"the key {', '.join(KEY)} occurs a second time": typed.duplicated(KEY),
        INCOMPLETE_ENERGY: incomplete,
    }
    for fault, wrong in faults.items():
        if wrong.any():
            raise SchemaError(f"{source}, line {int(typed.index[wrong][0]) + 2}: {fault}")
    return typed


def cast(rows: pandas.DataFrame, source: str = "rows") -> pandas.DataFrame:
    """Return the rows with the schema's columns and types; each value is checked on its own.

    A missing column becomes empty; an unknown column is kept, as text, after the others.
    Settings become dictionaries, empty where a row has none; rows with equal settings may share
    one dictionary.

    Raises:
        SchemaError: a required column is missing, or a value is not allowed. The message names
            the first line with a fault.
    """
    import pandas

    if missing := [name for name in REQUIRED if name not in rows]:
        raise SchemaError(f"{source}, line 1: missing column {', '.join(sorted(missing))}")
    empty, typed, faults = pandas.Series(pandas.NA, rows.index, dtype="string"), {}, []
    for name, dtype in DTYPES.items():
        codes, values = pandas.factorize(rows.get(name, empty))  # -1: missing
        if name in REQUIRED and len(missing := numpy.flatnonzero(codes < 0)):
            faults.append((missing[0], f"column {name} is empty; a value is needed"))
            continue
        try:
            values = _adapter(name).validate_python(values.tolist())
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            place, *inner = detail["loc"]
            faults.append(
                (numpy.argmax(codes == place), f"column {describe_error(detail, [name, *inner])}")
            )
            continue
        if dtype == "object":
            typed[name] = numpy.array([*values, {}], dtype=object)[
                codes
            ]  # code -1, no settings, is the last
        else:
            typed[name] = pandas.array(values, dtype=dtype).take(codes, allow_fill=True)
    if faults:
        place, fault = min(faults, key=lambda each: each[0])
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise SchemaError(f"{source}, line {int(rows.index[place]) + 2}: {fault}{more}")
    unknown = {name: rows[name].astype("string") for name in unknown_columns(rows)}
    return pandas.DataFrame(typed | unknown, index=rows.index)


@functools.cache
def _adapter(name: str) -> TypeAdapter:
    """Return what checks the values of a column."""
    return TypeAdapter(Annotated[list[HINTS[name]], FailFast()])


def unknown_columns(rows: pandas.DataFrame) -> list[str]:
    """Return the columns of rows that this version of the schema does not have; they are kept,
    as text."""
    return [name for name in rows if name not in DTYPES]


def check_row(row: dict, source: str) -> None:
    """Refuse a row that the schema does not allow; the verdict of `validate`, in a hundredth of
    its time.

    Args:
        row: values by column; a missing value is left out, or None.
        source: the name of the row in an error.

    Raises:
        SchemaError: see `validate`.
    """
    try:
        checked = Row.model_validate(
            {name: cell(value) for name, value in row.items() if value is not None}
        )
    except ValidationError as error:
        raise SchemaError(
            f"{source}: column {describe_error(error.errors(include_url=False)[0])}"
        ) from error
    if checked.energy_joules is not None and None in (
        checked.energy_method,
        checked.energy_boundary,
    ):
        raise SchemaError(f"{source}: {INCOMPLETE_ENERGY}")


def cell(value: object) -> str:
    """Return a value as text for a file; settings are JSON with sorted keys."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else str(value)


def describe_error(detail: dict, place: Iterable[str | int] | None = None) -> str:
    """Return pydantic's error as a message: the value's place, the value and what is allowed.

    Args:
        detail: one of the errors in a ValidationError.
        place: the keys and indices that lead to the value; default: the error's location.
    """
    keys = [key for key in (detail["loc"] if place is None else place) if key not in UNION_MEMBERS]
    path = (
        "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")
        or "the whole"
    )
    if detail["type"] in ("missing", "extra_forbidden"):
        return f"{path} is {'missing' if detail['type'] == 'missing' else 'unknown'}"
    rule = re.sub("^(Input|List) should (be|have) |, (unable|got) .*", "", detail["msg"])
    return f"{path} is {quoted(detail['input'])}; allowed: {rule}"


def quoted(value: object) -> str:
    """Return a value in quotes for a message; a long value is cut."""
    return _cut(repr(value[: MAX_QUOTED + 1] if isinstance(value, str) else value))


def listed(values: Iterable[object]) -> str:
    """Return values as a sorted list for a message: the first few if there are many, and long
    values cut."""
    ordered = sorted(map(str, values))
    more = f" and {len(ordered) - MAX_LISTED} more" if len(ordered) > MAX_LISTED else ""
    return ", ".join(map(_cut, ordered[:MAX_LISTED])) + more


def _cut(text: str) -> str:
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}... (cut)"
