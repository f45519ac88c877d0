"""Read a profile's YAML file and check it; an error names the file and the key."""

import math
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from benchbook.rows.schema import describe_error, open_mapping

LIMIT = "time_limit_minutes"  # of a run
MOST_POINTS = 1000  # of a study, on one device


# Parameters of the notebook; the value of one in a point, or of a key of its budget, wins over its
# study's.
Parameters = open_mapping("Parameters", budget=dict[str, object])


class Entry(BaseModel):
    """A profile's entry for one study."""

    model_config = ConfigDict(extra="forbid")
    points: Annotated[list[Parameters], Field(min_length=1)]
    parameters: Parameters = {}
    time_limit_minutes: Annotated[float, Field(strict=True, ge=0.01, le=100 * 24 * 60)]
    left: Annotated[str, Field(max_length=200)] = ""  # what is left to another profile, in words


STUDIES = TypeAdapter(Annotated[dict[str, Entry], Field(min_length=1)])


def read(paths: list[Path]) -> dict[str, dict]:
    """Return a profile's studies, each a mapping with the keys of `Entry`; notebooks' parameters
    are not checked here.

    Raises:
        ValueError: a file is not YAML, lacks a key, has a value that is not allowed, or a study
        that another one has.
    """
    content: dict[str, dict] = {}
    for path in paths:
        own = _read(path)
        if both := sorted(content.keys() & own):
            raise ValueError(f"{path}: {both[0]} is in {paths[0]}; allowed: a study of your own")
        content |= own
    return content


def _read(path: Path) -> dict[str, dict]:
    try:
        content = yaml.safe_load(path.read_bytes())
    except Exception as error:  # PyYAML raises errors of many types
        raise ValueError(
            f"{path.name} is not YAML ({' '.join(str(error).split())[:200]})"
        ) from error
    try:
        STUDIES.validate_python(content)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        named = (
            f"; allowed: {', '.join(Entry.model_fields)}"
            if detail["type"] in ("missing", "extra_forbidden")
            else ""
        )
        raise ValueError(f"{path.name}: {describe_error(detail)}{named}") from error
    for study, entry in content.items():
        count = 0
        for point in entry["points"]:
            values = (entry.get("parameters", {}) | point).values()
            count += math.prod(len(value) for value in values if isinstance(value, list))
        if not 1 <= count <= MOST_POINTS:
            raise ValueError(
                f"{path.name}: {study} has {count} points; allowed: 1 to {MOST_POINTS}"
            )
    return content
