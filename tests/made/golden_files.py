"""Files of golden values: JSON, one record a line, and what differs between two of them. Nothing
of benchbook."""

import csv
import json
import math
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"
DIGITS = 10  # significant ones of a number in a file
TOLERANCE = 1e-8  # relative
# Absolute: a difference of equal numbers is 0 on one CPU and 2e-16 on another.
LEAST = 1e-12
# Other BLAS libraries and numbers of threads round the fit of a model differently.
TOLERANCES = {"predictions.json": 1e-6, "costs.json": 1e-6}
# Sets of instructions that decide how libraries compute, as Linux names them.
INSTRUCTIONS = (
    "avx2",
    "fma",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
    "sve",
    "bf16",
)

Record = dict[str, object]


def write(records: dict[str, Record], path: Path) -> None:
    """Write records by key, so that a commit's diff shows which number changed; what did not
    change stays as it was."""
    old, lines = read(path) if path.exists() else {}, []
    for key in sorted(records):
        record = _plain(records[key])
        same = key in old and not _differing(old[key], record, path.name)
        lines.append(
            f"{json.dumps(key)}: {json.dumps(old[key] if same else record, sort_keys=True)}"
        )
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read(path: Path) -> dict[str, Record]:
    return json.loads(path.read_text(encoding="utf-8"))


def differences(was: Path, now: Path) -> list[str]:
    """Return a line for each value in which two files differ by more than the tolerance: `file:
    key: was -> is`."""
    return [f"{was.name}: {line}" for line in _differing(read(was), read(now), was.name)]


def questions() -> Iterator[tuple[dict[str, str | int], str]]:
    """Yield what is asked of predictions, far apart, and why it is refused; empty: it is
    answered."""
    with FOLDER.with_name("questions.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            missing = line.pop("missing")
            yield (
                {
                    name: int(text) if text.isdigit() else text
                    for name, text in line.items()
                    if text
                },
                missing,
            )


def kind_of_cpu() -> str:
    """Return the kind of this computer's CPU, as part of a file's name: losses are equal on one
    kind only."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        name = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True
        ).stdout
        return _slug(f"{name or platform.processor()} {platform.machine()}")
    fields = dict(
        re.findall(r"^([^\t:]+?)\s*: (.*)$", cpuinfo.read_text().partition("\n\n")[0], re.MULTILINE)
    )
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    names = (
        "model name",
        "cpu family",
        "model",
        "CPU implementer",
        "CPU part",
    )  # the last two are Arm's
    return _slug(
        " ".join(
            [fields[name] for name in names if name in fields]
            + [i for i in INSTRUCTIONS if i in flags]
        )
    )


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")


def _plain(value: object) -> object:
    """Return a value as JSON has it: numbers rounded, whole ones without a point, what is
    missing left out."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items() if not _is_missing(part)}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and math.isfinite(value):
        rounded = float(f"{value:.{DIGITS}g}")
        return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
    return str(value) if isinstance(value, float) else value  # JSON has no infinity


def _is_missing(value: object) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _differing(was: object, now: object, name: str) -> list[str]:
    """Return a line for each value in which two records, or two files' records, differ."""
    old, new = dict(_leaves(was)), dict(_leaves(now))
    return [
        f"{key}: {_shown(old, key)} -> {_shown(new, key)}"
        for key in dict.fromkeys([*old, *new])
        if key not in old
        or key not in new
        or not _alike(old[key], new[key], TOLERANCES.get(name, TOLERANCE))
    ]


def _leaves(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Yield every number, text and truth, with the keys that lead to it; of a list its places
    are keys."""
    parts = (
        value.items()
        if isinstance(value, dict)
        else [*enumerate(value)]
        if isinstance(value, list)
        else None
    )
    if not parts:
        yield place, value
        return
    for key, part in parts:
        yield from _leaves(part, f"{place}: {key}" if place else str(key))


def _alike(was: object, now: object, tolerance: float) -> bool:
    numbers = all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in (was, now)
    )
    return (
        math.isclose(was, now, rel_tol=tolerance, abs_tol=LEAST)
        if numbers
        else was == now and type(was) is type(now)
    )


def _shown(leaves: dict[str, object], key: str) -> str:
    return json.dumps(leaves[key]) if key in leaves else "nothing"
