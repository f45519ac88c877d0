"""Read a profile's YAML file into plain values with line numbers; an error names its line."""

import math
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from benchbook.rows.schema import complaint, quoted

LIMIT = "time_limit_minutes"  # of a run; a study's, or a point's own
PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "map", "seq")}
LARGEST_BYTES = 32 * 1024
MOST_POINTS = 1000  # of a study, on one device
DEEPEST = 8  # nesting of lists and mappings


class ProfileError(ValueError):
    """A profile cannot be read; the message names file, line and what is allowed."""


class Mapping(dict):
    """A mapping of the file, which knows its own line and those of its keys; lines count from 1."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line, self.lines = line, {}


def _plain(value: object) -> object:
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(part, list | dict) for part in values):
        raise PydanticCustomError("plain", "a text, a number, or a list of them that is not empty")
    return value


def _single(value: object) -> object:
    if isinstance(value, list | dict):
        raise PydanticCustomError("plain", "a text or a number")
    return value


Minutes = Annotated[float, Field(strict=True, ge=0.01, le=100 * 24 * 60)]


class Parameters(BaseModel):
    """What one point, or all of a study, give the notebook: values that its parameters cell declares.

    Attributes:
        budget: values of keys that the study has in notebooks/budgets.yaml; a point's go before its study's.
    """

    model_config = ConfigDict(extra="allow")
    time_limit_minutes: Minutes = 1
    budget: dict[str, Annotated[Any, AfterValidator(_single)]] = {}
    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_plain)]]


class Entry(BaseModel):
    """A profile's entry for one study."""

    model_config = ConfigDict(extra="forbid")
    points: Annotated[list[Parameters], Field(min_length=1)]
    parameters: Parameters = Parameters()
    num_kernels: Annotated[int, Field(strict=True, ge=1, le=1000)] = 1
    time_limit_minutes: Minutes


PROFILE = TypeAdapter(dict[str, Entry])


def read(path: Path) -> Mapping:
    """Return a profile's studies, each a mapping as `Entry` is, checked but for what notebooks declare.

    Args:
        path: a file of YAML without tags, anchors and aliases.

    Raises:
        ProfileError: the file is no such YAML, lacks something, or holds a value that is not allowed.
    """
    content = compose(path)
    if not isinstance(content, Mapping) or not content:
        raise ProfileError(f"{path.name}, line 1: allowed: a mapping of studies")
    check(PROFILE, content, path, list(Entry.model_fields))
    for study, entry in content.items():
        choices = [entry.get("parameters", {}) | point for point in entry["points"]]
        lengths = [[len(value) for value in each.values() if isinstance(value, list)] for each in choices]
        if (count := sum(map(math.prod, lengths))) > MOST_POINTS:
            place = f"{path.name}, line {content.lines[study]}"
            raise ProfileError(f"{place}: {study} has {count} points; allowed: {MOST_POINTS}")
    return content


def check(kind: TypeAdapter, content: Mapping, path: Path, names: list[str]) -> Any:
    """Return a file's content as a type has it.

    Args:
        kind: of pydantic.
        content: from `compose`.
        path: of the file, for the error.
        names: the keys that are allowed, for the error.

    Raises:
        ProfileError: names file, line, value and what is allowed.
    """
    try:
        return kind.validate_python(content)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        *outer, _ = study, *inner = detail["loc"]
        named = f"; allowed: {', '.join(names)}" if detail["type"] in ("missing", "extra_forbidden") else ""
        words = f"{study}: {complaint(detail, inner)}" if outer else complaint(detail)
        raise ProfileError(f"{path.name}, line {_line_of(content, detail['loc'])}: {words}{named}") from error


def _line_of(content: Mapping, place: tuple[str | int, ...]) -> int:
    """Return the line of what lies at a place, or of the nearest around it whose line is known."""
    line, value = content.line, content
    for key in place:
        if isinstance(value, Mapping):
            line = value.lines.get(key, line)
        if isinstance(value, list | dict):
            value = value.get(key) if isinstance(value, dict) else value[key]
            line = getattr(value, "line", line) if isinstance(key, int) else line
    return line


def compose(path: Path) -> object:
    """Return what a file of YAML holds: mappings that know their lines, lists and plain values.

    Raises:
        ProfileError: it is no YAML without tags, anchors and aliases, or too large.
    """
    try:
        text = path.read_bytes()
        if len(text) > LARGEST_BYTES:
            raise ProfileError(f"{path.name}: {len(text)} bytes; allowed: {LARGEST_BYTES}")
        loader = _Loader(text.decode())
        loader.name = path.name
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ProfileError(f"{path.name}, line {line}: not YAML ({error.problem or error.context})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path.name}: not text in UTF-8 ({str(error).splitlines()[0][:200]})") from error


class _Loader(yaml.SafeLoader):
    """Refuses anchors, other than plain values, keys that occur twice, and levels that take a parser long."""

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
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        if not isinstance(node, yaml.MappingNode):
            try:
                return super().construct_object(node, deep=True)
            except ProfileError:
                raise
            except ValueError as error:
                self.refuse(node, f"{quoted(node.value)} ({str(error)[:80]})")
        mapping = Mapping(node.start_mark.line + 1)
        for key_node, value_node in node.value:
            key = self.construct_object(key_node)
            if not isinstance(key, str) or key in mapping:
                self.refuse(
                    key_node, f"key {str(key)[:80]!r} {'occurs twice' if isinstance(key, str) else 'is no text'}"
                )
            mapping[key] = self.construct_object(value_node)
            mapping.lines[key] = key_node.start_mark.line + 1
        return mapping
