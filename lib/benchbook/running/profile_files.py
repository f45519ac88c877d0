"""Read a profile's YAML file and check it; an error names the file and the key."""

import math
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from benchbook.rows.schema import describe_error

LIMIT = "time_limit_minutes"  # of a run
MOST_POINTS = 1000  # of a study, on one device


def _plain(value: object) -> object:
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(part, list | dict) for part in values):
        raise PydanticCustomError("plain", "a text, a number, or a list of them that is not empty")
    return value


def _single(value: object) -> object:
    if isinstance(value, list | dict):
        raise PydanticCustomError("plain", "a text or a number")
    return value


class Parameters(BaseModel):
    """Parameters of the notebook that a profile sets for one point, or for all points of a study.

    Attributes:
        budget: keys of the study in notebooks/budgets.yaml, with values; a point's value wins over its study's.
    """

    model_config = ConfigDict(extra="allow")
    budget: dict[str, Annotated[Any, AfterValidator(_single)]] = {}
    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_plain)]]


class Entry(BaseModel):
    """A profile's entry for one study."""

    model_config = ConfigDict(extra="forbid")
    points: Annotated[list[Parameters], Field(min_length=1)]
    parameters: Parameters = Parameters()
    time_limit_minutes: Annotated[float, Field(strict=True, ge=0.01, le=100 * 24 * 60)]


STUDIES = TypeAdapter(Annotated[dict[str, Entry], Field(min_length=1)])


def read(path: Path) -> dict[str, dict]:
    """Return a profile's studies, each a mapping with the keys of `Entry`; notebooks' parameters are not checked here.

    Raises:
        ValueError: the file is not YAML, lacks a key, or has a value that is not allowed.
    """
    try:
        content = yaml.safe_load(path.read_bytes())
    except Exception as error:  # PyYAML raises errors of many types
        raise ValueError(f"{path.name} is not YAML ({' '.join(str(error).split())[:200]})") from error
    try:
        STUDIES.validate_python(content)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        named = (
            f"; allowed: {', '.join(Entry.model_fields)}" if detail["type"] in ("missing", "extra_forbidden") else ""
        )
        raise ValueError(f"{path.name}: {describe_error(detail)}{named}") from error
    for study, entry in content.items():
        choices = [entry.get("parameters", {}) | point for point in entry["points"]]
        lengths = [[len(value) for value in each.values() if isinstance(value, list)] for each in choices]
        if (count := sum(map(math.prod, lengths))) > MOST_POINTS:
            raise ValueError(f"{path.name}: {study} has {count} points; allowed: {MOST_POINTS}")
    return content
