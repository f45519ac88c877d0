"""Read a profile's YAML file into plain values; an error names its line."""

import math
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from benchbook.rows.schema import describe_error, quoted

LIMIT = "time_limit_minutes"  # of a run
PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "map", "seq")}
LARGEST_BYTES = 32 * 1024
MOST_POINTS = 1000  # of a study, on one device
DEEPEST = 8  # nesting of lists and mappings


class ProfileError(ValueError):
    """A profile cannot be read; the message names file, line and what is allowed."""


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
    num_kernels: Annotated[int, Field(strict=True, ge=1, le=1000)] = 1
    time_limit_minutes: Annotated[float, Field(strict=True, ge=0.01, le=100 * 24 * 60)]


class Content(dict):
    """A file's mapping of plain values, with the line of each; `load` makes it."""

    def __init__(self, values: dict, node: yaml.Node, name: str) -> None:
        super().__init__(values)
        self.node, self.name = node, name

    def error(self, problem: object, *place: str | int) -> ProfileError:
        """Return an error with the line of a value, or of the nearest value around it; place: keys and indices."""
        node, marked = self.node, self.node
        for key in place:
            if isinstance(node, yaml.MappingNode):
                marked, node = next((pair for pair in node.value if pair[0].value == key), (marked, None))
            elif isinstance(node, yaml.SequenceNode):
                node = node.value[key]
                marked = node if isinstance(node, yaml.MappingNode) else marked
        return ProfileError(f"{self.name}, line {marked.start_mark.line + 1}: {problem}")


def read(path: Path) -> Content:
    """Return a profile's studies, each a mapping with the keys of `Entry`; notebooks' parameters are not checked here.

    Raises:
        ProfileError: see `load`.
    """
    content, _ = load(path, dict[str, Entry], list(Entry.model_fields), "studies")
    for study, entry in content.items():
        choices = [entry.get("parameters", {}) | point for point in entry["points"]]
        lengths = [[len(value) for value in each.values() if isinstance(value, list)] for each in choices]
        if (count := sum(map(math.prod, lengths))) > MOST_POINTS:
            raise content.error(f"{study} has {count} points; allowed: {MOST_POINTS}", study)
    return content


def load(path: Path, kind: type, names: list[str], keys: str) -> tuple[Content, Any]:
    """Return a file's mapping, as plain values and as a type that pydantic validates.

    Args:
        path: a YAML file without tags, anchors and aliases.
        kind: the type.
        names: the allowed keys, for the error.
        keys: what the file maps, for the error.

    Raises:
        ProfileError: the file is not such YAML, is too large, lacks a key, or has a value that is not allowed.
    """
    try:
        text = path.read_bytes()
        if len(text) > LARGEST_BYTES:
            raise ProfileError(f"{path.name}: {len(text)} bytes; allowed: {LARGEST_BYTES}")
        loader = _Loader(text.decode())
        loader.name = path.name
        node = loader.get_single_node()
        values = loader.construct_document(node) if node else None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ProfileError(f"{path.name}, line {line}: not YAML ({error.problem or error.context})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path.name}: not text in UTF-8 ({str(error).splitlines()[0][:200]})") from error
    if not isinstance(values, dict) or not values:
        raise ProfileError(f"{path.name}, line 1: allowed: a mapping of {keys}")
    content = Content(values, node, path.name)
    try:
        return content, TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        first, *inner = place = detail["loc"]
        named = f"; allowed: {', '.join(names)}" if detail["type"] in ("missing", "extra_forbidden") else ""
        words = f"{first}: {describe_error(detail, inner)}" if inner else describe_error(detail)
        raise content.error(words + named, *place) from error


class _Loader(yaml.SafeLoader):
    """Refuses anchors, values that are not plain, duplicate keys and deep nesting, which takes a parser long."""

    depth = 0

    def refuse(self, part: yaml.Node | yaml.Event, problem: str) -> None:
        raise ProfileError(f"{self.name}, line {part.start_mark.line + 1}: {problem}")

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        event = self.peek_event()
        if getattr(event, "anchor", None):
            self.refuse(event, "anchors and aliases (& and *) are not allowed")
        self.depth += 1
        if self.depth > DEEPEST:
            self.refuse(event, f"lists within lists; allowed: {DEEPEST} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node.tag not in PLAIN:
            kind = node.tag.removeprefix("tag:yaml.org,2002:")
            self.refuse(node, f"a value of kind {kind[:80]}; allowed: plain texts and numbers")
        if isinstance(node, yaml.ScalarNode):
            try:
                self.construct_object(node)
            except ValueError as error:
                self.refuse(node, f"{quoted(node.value)} ({str(error)[:80]})")
        keys = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str) or key in keys:
                problem = "occurs twice" if isinstance(key, str) else "is no text"
                self.refuse(key_node, f"key {str(key)[:80]!r} {problem}")
            keys.add(key)
        return node
