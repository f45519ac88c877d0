"""A profile's YAML file into plain values whose lines are known; what is wrong with it is one line with its place."""

import math
from pathlib import Path

import yaml

LIMIT = "time_limit_minutes"  # of a run; a study's, or a point's own
ENTRY = ("points", "parameters", "num_kernels", LIMIT)
PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "map", "seq")}
LARGEST_BYTES = 32 * 1024
MOST_POINTS = 1000  # of a study, on one device
MOST_KERNELS = 1000
MOST_MINUTES = 100 * 24 * 60
DEEPEST = 8  # levels of lists and mappings within each other


class ProfileError(ValueError):
    """A profile cannot be read; the message names file, line and what is allowed."""


class Mapping(dict):
    """A mapping of the file, which knows its own line and those of its keys; lines count from 1."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line, self.lines = line, {}


def read(path: Path) -> Mapping:
    """Return a profile's studies, each a mapping of ENTRY, checked but for what notebooks declare.

    Args:
        path: a file of YAML without tags, anchors and aliases.

    Raises:
        ProfileError: the file is no such YAML, lacks something, or holds a value that is not allowed.
    """
    content = compose(path)
    if not isinstance(content, Mapping) or not content:
        raise ProfileError(f"{path.name}, line 1: allowed: a mapping of studies")
    for study, entry in content.items():
        _check_entry(path.name, study, entry, content.lines[study])
    return content


def compose(path: Path) -> object:
    """Return what a file of YAML holds: mappings that know their lines, lists and plain values.

    Raises:
        ProfileError: it is no YAML without tags, anchors and aliases, or too large.
    """
    try:
        text = path.read_bytes()
        if len(text) > LARGEST_BYTES:
            raise ProfileError(f"{path.name}: {len(text)} bytes; allowed: {LARGEST_BYTES}")
        _check_events(path.name, text.decode())
        loader = yaml.SafeLoader(text.decode())
        node = loader.get_single_node()
        return None if node is None else _value(path.name, node, loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ProfileError(f"{path.name}, line {line}: not YAML ({error.problem or error.context})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path.name}: not text in UTF-8 ({str(error).splitlines()[0][:200]})") from error


def _check_events(name: str, text: str) -> None:
    """Refuse anchors, and levels that take a parser long, as soon as they come."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if getattr(event, "anchor", None):
            raise ProfileError(f"{name}, line {_line(event)}: anchors and aliases (& and *) are not allowed")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ProfileError(f"{name}, line {_line(event)}: lists within lists; allowed: {DEEPEST} levels")


def _line(part: yaml.Node | yaml.Event) -> int:
    return part.start_mark.line + 1


def _value(name: str, node: yaml.Node, loader: yaml.SafeLoader) -> object:
    """Return a node's value: a scalar, a list or a Mapping."""
    if node.tag not in PLAIN:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        raise ProfileError(f"{name}, line {_line(node)}: a value of kind {kind[:80]}; allowed: plain texts and numbers")
    if isinstance(node, yaml.SequenceNode):
        return [_value(name, part, loader) for part in node.value]
    if not isinstance(node, yaml.MappingNode):
        try:
            return loader.construct_object(node)
        except ValueError as error:
            raise ProfileError(f"{name}, line {_line(node)}: {node.value[:80]!r} ({str(error)[:80]})") from error
    mapping = Mapping(_line(node))
    for key_node, value_node in node.value:
        key = _value(name, key_node, loader)
        if not isinstance(key, str) or key in mapping:
            problem = "occurs twice" if isinstance(key, str) else "is no text"
            raise ProfileError(f"{name}, line {_line(key_node)}: key {str(key)[:80]!r} {problem}")
        mapping[key] = _value(name, value_node, loader)
        mapping.lines[key] = _line(key_node)
    return mapping


def _check_entry(name: str, study: str, entry: object, line: int) -> None:
    """Refuse a study's entry that is not made of ENTRY, or has a limit that is none."""
    if not isinstance(entry, Mapping):
        raise ProfileError(
            f"{name}, line {line}: {study} is {str(entry)[:80]!r}; allowed: a mapping of {', '.join(ENTRY)}"
        )
    unknown = [key for key in entry if key not in ENTRY]
    missing = [key for key in ("points", LIMIT) if key not in entry]
    if unknown or missing:
        place = entry.lines[unknown[0]] if unknown else line
        problem = f"unknown key {unknown[0][:80]!r}" if unknown else f"missing key {missing[0]!r}"
        raise ProfileError(f"{name}, line {place}: {study}: {problem}; allowed: {', '.join(ENTRY)}")
    _check_number(name, study, entry, LIMIT, MOST_MINUTES)
    _check_number(name, study, entry, "num_kernels", MOST_KERNELS)
    points = entry["points"]
    if not isinstance(points, list) or not points:
        raise ProfileError(f"{name}, line {entry.lines['points']}: {study}: points is no list, or empty")
    shared = entry.get("parameters", Mapping(line))
    for number, point in enumerate([shared, *points]):
        if not isinstance(point, Mapping):
            what, place = ("a point", "points") if number else ("parameters", "parameters")
            raise ProfileError(
                f"{name}, line {entry.lines[place]}: {study}: {what} is {str(point)[:80]!r}; allowed: a mapping"
            )
        _check_values(name, study, point)
        _check_number(name, study, point, LIMIT, MOST_MINUTES)
    count = sum(
        math.prod(len(value) for value in (shared | point).values() if isinstance(value, list)) for point in points
    )
    if count > MOST_POINTS:
        raise ProfileError(f"{name}, line {line}: {study} has {count} points; allowed: {MOST_POINTS}")


def _check_number(name: str, study: str, entry: Mapping, key: str, most: float) -> None:
    value, whole = entry.get(key, 1), key == "num_kernels"
    right = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not right or not (1 if whole else 0.01) <= value <= most:
        allowed = f"1 to {most}" if whole else f"0.01 to {most}"
        raise ProfileError(
            f"{name}, line {entry.lines[key]}: {study}: {key} is {str(value)[:80]!r}; allowed: numbers, {allowed}"
        )


def _check_values(name: str, study: str, point: Mapping) -> None:
    """Refuse a parameter that is neither a plain value nor a list of some."""
    for parameter, value in point.items():
        values = value if isinstance(value, list) else [value]
        if not values or any(isinstance(part, list | dict) for part in values):
            raise ProfileError(
                f"{name}, line {point.lines[parameter]}: {study}: {parameter} is {str(value)[:80]!r}; "
                "allowed: a text, a number, or a list of them that is not empty"
            )
