"""The parameters of studies: each is declared once, as an annotated field of its study's Plan.

A field whose annotation has pydantic's `Field` is a parameter, with its type, default, bounds
and meaning; one with the mark BUDGET as well is a key of the notebook's parameter `budget`,
which says how much to measure. Profiles, names of points, help and docs/budget.md ask here. A
notebook's cell shows the parameters outside the budget again, for its reader; a test compares
the two.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from benchbook import studies
from benchbook.machine.kinds import GROUPS, KINDS
from benchbook.measuring.trials import PRECISIONS
from benchbook.rows import manifests, points
from benchbook.rows.schema import describe_error, quoted

if TYPE_CHECKING:
    import pandas

BUDGET = "budget"
HEAD = """# The keys of `budget`

A notebook's parameter `budget` says how much to measure: a profile's name, or a dict of these keys. Each is a field of
its study's `Plan`; `python -m benchbook.studies.experiments.parameters` writes this page.

| key | meaning | allowed | default |
|---|---|---|---|"""
LIMITS = (("ge", "from"), ("gt", "above"), ("le", "to"))
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def words_of(*allowed: str) -> AfterValidator:
    """Return a validator of a text: words separated by blanks, each one of those that are
    allowed."""

    def validate(text: str) -> str:
        if not set(text.split()) <= set(allowed):
            raise PydanticCustomError(
                "words", "{allowed}", {"allowed": f"words of {', '.join(allowed)}"}
            )
        return text

    return AfterValidator(validate)


# Parameters of several studies.
Precision = Annotated[
    Literal[*PRECISIONS], Field(description="of the computation, with variant reference only")
]
Precisions = Annotated[
    str, words_of(*PRECISIONS), Field(description="compared with float64, separated by blanks")
]
ImageSize = Annotated[int, Field(ge=32, description="pixels a side")]
LearningRate = Annotated[float, Field(gt=0, description="of the first step")]
SearchSeconds = Annotated[
    float, Field(gt=0, description="tuned: time to look for the fastest settings"), BUDGET
]
TestImages = Annotated[
    int, Field(ge=0, description="test on this many images, evenly spread; 0: all"), BUDGET
]
TrialBatchSize = Annotated[
    int, Field(ge=1, description="tuned: most images a step and device in the search"), BUDGET
]
AllowEmbedded = Annotated[
    bool,
    Field(
        description="if the data set is unavailable, train on an embedded one, which the rows name"
    ),
    BUDGET,
]
DataRoot = Annotated[
    str,
    Field(
        description="folder of data set and weights; empty: BENCHBOOK_DATA, the cache, or a download"
    ),
    BUDGET,
]


def plan_of(study: str) -> Any:
    """Return the class of a study's plan.

    Raises:
        ValueError: no such study; the message lists those that exist.
    """
    if study not in studies.folders():
        raise ValueError(f"unknown study {study!r}; allowed: {', '.join(studies.names())}")
    return importlib.import_module(f"benchbook.studies.{study}.plan").Plan


def model(study: str) -> type[BaseModel]:
    """Return the pydantic model of a study's parameters."""
    return model_of(plan_of(study))


@functools.cache
def model_of(plan: Any) -> type[BaseModel]:
    """Return the model of a Plan's choices and annotated fields.

    A field without an annotation of its own, such as `batch_size: int = 128`, is a base class's
    with another default.
    """
    choices = {
        "variant": plan.VARIANTS,
        "framework": plan.FRAMEWORKS if plan.FRAMEWORKS[1:] else (),
    }
    choices |= {"device": ("best", "all", *GROUPS, *KINDS), "dataset": plan.DATASETS}
    first = {"framework": plan.FRAMEWORK, "device": "best"}
    made = {
        name: (Literal[first.get(name, allowed[0]), *allowed], first.get(name, allowed[0]))
        for name, allowed in choices.items()
        if allowed
    }
    hints = {
        name: hint
        for base in reversed(inspect.getmro(plan))  # a later one may declare a field again
        for name, hint in inspect.get_annotations(base).items()
        if any(isinstance(part, FieldInfo) for part in get_args(hint))
    }
    for each in fields(plan):
        if each.name in hints.keys() - plan.WITHOUT:
            made[each.name] = hints[each.name], each.default
    return create_model("Parameters", __config__=STRICT, **made)


def declared(study: str) -> dict:
    """Return a study's parameters with their defaults, those of the budget included."""
    return {name: field.default for name, field in model(study).model_fields.items()}


def budget(study: str) -> dict:
    """Return the keys of a study's budget with their defaults."""
    return {
        name: each.default
        for name, each in model(study).model_fields.items()
        if BUDGET in each.metadata
    }


def nested(study: str, parameters: dict) -> dict:
    """Return parameters as a notebook takes them, with the budget's keys inside `budget`."""
    keys = budget(study)
    inner = {name: value for name, value in parameters.items() if name in keys}
    return {name: value for name, value in parameters.items() if name not in keys} | {BUDGET: inner}


def check(study: str, parameters: Mapping) -> dict:
    """Return parameters and keys of a budget, each in its own type.

    Raises:
        ValueError: a study lacks the parameter, or its value has another type or is not allowed;
        the message names the
            parameter, its value, and what is allowed.
    """
    require_names(f"{study} has no parameter", parameters, declared(study))
    try:
        manifests.PARAMETERS.validate_python(
            parameters
        )  # values that a manifest may not hold are refused
        return model(study)(**parameters).model_dump(include=set(parameters))
    except ValidationError as error:
        raise ValueError(
            f"{study}: {describe_error(error.errors(include_url=False)[0])}"
        ) from error


def require_names(complaint: str, given: Mapping, allowed: Mapping) -> None:
    """Raise ValueError for the first name, with its value, that is not allowed."""
    for name, value in given.items():
        if name not in allowed:
            raise ValueError(
                f"{complaint} {quoted(name)} (value {quoted(value)}); allowed: {', '.join(allowed)}"
            )


def non_default(study: str, parameters: dict) -> dict:
    """Return the parameters that differ from the study's defaults, sorted; the folders of files
    do not count.

    A parameter that is missing counts as its default, so that a new parameter leaves the names
    of older points.

    Args:
        study: the study.
        parameters: by name, with the device and framework that were picked.
    """
    known = declared(study)
    typed = {
        name: float(value) if type(known.get(name)) is float else value
        for name, value in sorted(points.public(parameters).items())
    }
    return {
        name: value for name, value in typed.items() if name not in known or value != known[name]
    }


def point_name(study: str, parameters: dict) -> str:
    """Return a point's folder name: variant, device, changed parameters without the budget's,
    and a hash.

    The hash covers all changed parameters except the device, so that the same work has the same
    hash on every device.

    Args:
        study: the study.
        parameters: by name, with the device that was picked (not `best`).
    """
    work = {
        name: value for name, value in non_default(study, parameters).items() if name != "device"
    }
    digest = hashlib.sha256(json.dumps([study, work], sort_keys=True).encode()).hexdigest()[:8]
    leading, changed = _described(study, parameters)
    texts = [
        name if value is True else f"not_{name}" if value is False else f"{name}_{value}"
        for name, value in changed.items()
    ]
    words = [re.sub(r"[^A-Za-z0-9._]+", "_", text) for text in texts]
    return f"{'-'.join([*leading.values(), *words])[: points.MAX_LENGTH]}-{digest}"


def title(study: str, parameters: dict) -> str:
    """Return a point's title for people, such as `reference, CPU, TensorFlow, 64 px, batch 32`.

    Args:
        study, parameters: see `point_name`.
    """
    from benchbook.record import naming  # and pandas, which a measuring process does not need

    leading, changed = _described(study, parameters)
    return naming.words(told := leading | changed, told)


def titles(rows: pandas.DataFrame, described: Mapping[str, dict]) -> dict[str, str]:
    """Return the title of each point in some rows, by its name; the name itself without a manifest.

    Args:
        rows: any rows.
        described: manifests by run id.
    """
    found = {}
    for study, name, run_id in rows.drop_duplicates("point")[
        ["study", "point", "run_id"]
    ].itertuples(index=False):
        parameters = described.get(run_id, {}).get("parameters")
        found[name] = title(study, parameters) if parameters else name
    return found


def _described(study: str, parameters: dict) -> tuple[dict, dict]:
    """Return variant (if the study has any) and device, and the changed parameters without the
    budget's."""
    leading = {name: parameters[name] for name in ("variant", "device") if name in parameters}
    left_out = leading.keys() | budget(study).keys()
    return leading, {
        name: own for name, own in non_default(study, parameters).items() if name not in left_out
    }


def table() -> str:
    """Return docs/budget.md: the keys of `budget`, each with its meaning, its bounds, and its
    default by study."""
    rows, own = {}, {}
    for study in studies.names():
        for name, default in budget(study).items():
            field = model(study).model_fields[name]
            limits = [
                f"{words} {getattr(part, key):g}"
                for part in field.metadata
                for key, words in LIMITS
                if hasattr(part, key)
            ]
            rows.setdefault(
                name, (field.description, ", ".join([field.annotation.__name__, *limits]))
            )
            own.setdefault(name, {}).setdefault(json.dumps(default), []).append(study)
    lines = [HEAD]
    for name, described in sorted(rows.items()):
        several = len(own[name]) > 1
        defaults = [
            f"{value} ({', '.join(names)})" if several else value
            for value, names in own[name].items()
        ]
        lines.append(f"| `{name}` | {' | '.join(described)} | {'; '.join(defaults)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    Path("docs/budget.md").write_text(table(), encoding="utf-8")
