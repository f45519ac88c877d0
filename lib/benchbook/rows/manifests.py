"""The manifest of a run, the JSON beside its rows: what it may hold, and reading all of a folder.

A manifest says what does not change within a run: parameters, machine, environment, and the machine's condition before,
during and after. Every value may be missing, and what is not named here may stand beside it.
"""

import json
from pathlib import Path

from benchbook.machine import layout

FILES = "*Z-*.json"  # named by run: a time in UTC, then eight random digits
NUMBER, TEXT, TRUTH = (int, float), str, bool
NAME = layout.is_name  # a text that becomes part of a folder's name
NAMES = {NUMBER: "a number", TEXT: "a text", TRUTH: "true or false", NAME: layout.NAME_RULE}
GPU = {
    **dict.fromkeys(("sm_clock_mhz", "memory_clock_mhz", "temperature_celsius", "thermal_slowdown_seconds"), NUMBER),
    "clock_reasons": [TEXT],
    "num_other_processes": NUMBER,
}
STATE = {
    **dict.fromkeys(("awake_seconds", "elapsed_seconds", "seconds_since_boot", "repeat", "index"), NUMBER),
    **dict.fromkeys(("available_memory_bytes", "swap_used_bytes", "swapped_in_bytes", "swapped_out_bytes"), NUMBER),
    **dict.fromkeys(("load_average_1_minute", "battery_percent", "cpu_clock_mhz", "cpu_clock_limit_mhz"), NUMBER),
    **dict.fromkeys(("cpu_speed_limit_percent", "cpu_temperature_celsius", "cpu_thermal_level"), NUMBER),
    **dict.fromkeys(("cpu_throttle_count", "cpu_throttle_seconds", "cpu_cores"), NUMBER),
    **dict.fromkeys(("cpu_busy_seconds", "cpu_own_seconds", "cpu_stolen_seconds"), NUMBER),
    **dict.fromkeys(("low_power_mode", "mps_fallback", "translated"), TRUTH),
    **dict.fromkeys(("power_source", "thermal_pressure", "cpu_governor", "platform_profile"), TEXT),
    "gpus": [GPU],
}
SCHEMA = {
    "commit": TEXT,
    "parameters": {},
    "machine": {
        **dict.fromkeys(("name", "fingerprint"), NAME),
        **dict.fromkeys(("chip", "system"), TEXT),
        **dict.fromkeys(("memory_bytes", "physical_cores", "logical_cores", "usable_cores"), NUMBER),
        "accelerators": [TEXT],
    },
    "environment": {**dict.fromkeys(("python", "lock", "lock_sha256"), TEXT), "packages": {}},
    "condition_before": STATE,
    "condition_after": STATE,
    "conditions": [STATE],
    "trials": [{}],
    "tuning": {"chosen": TEXT, "settings": {}},
    "masks": {"start": [TEXT], "end": [TEXT]},
    "misplaced_operations": {},
    "process_seconds": NUMBER,
    "own_files": {name: {"file": TEXT, "sha256": TEXT, "commit": TEXT} for name in ("network", "example", "loss")},
}
# What an object must hold where it stands at all.
NEEDED = {
    "conditions": ("awake_seconds", "elapsed_seconds"),
    "trials": ("outcome",),
    "masks": ("start", "end"),
}


class ManifestError(ValueError):
    """A manifest does not obey its schema; the message names the file, the value's place and what is allowed."""


def check(content: bytes, source: str) -> dict:
    """Return a manifest from the bytes of its file.

    Raises:
        ManifestError: it is no JSON, or holds a value of another kind than its name stands for.
    """
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{source} is not JSON ({str(error)[:200]})") from error
    fault = _fault(manifest, SCHEMA)
    if fault:
        raise ManifestError(f"{source}: {fault}")
    return manifest


def read(path: Path) -> dict:
    """Return one run's manifest.

    Raises:
        ManifestError: see `check`, or the file cannot be read.
    """
    try:
        return check(path.read_bytes(), str(path))
    except OSError as error:
        raise ManifestError(f"{path} cannot be read ({error.strerror})") from error


def files(folder: Path, pattern: str = FILES) -> dict[Path, dict]:
    """Return the manifest of every run below a folder, by its file; one that does not obey the schema is left out."""
    return _readable(sorted(folder.rglob(pattern)))


def every(folder: Path) -> dict[str, dict]:
    """Return the manifest of every run below a folder, by run id; one that does not obey the schema is left out."""
    return {path.stem: manifest for path, manifest in files(folder).items()}


def faults(tables: list[Path]) -> list[str]:
    """Return what is wrong with the manifests beside tables of rows, a line each."""
    wrong = []
    for path in (table.with_suffix(".json") for table in tables):
        try:
            if path.exists():
                read(path)
        except ManifestError as error:
            wrong.append(str(error))
    return wrong


def _readable(paths: list[Path]) -> dict[Path, dict]:
    """Return the manifests that obey the schema; runs of the same environment share it, as reading thousands needs."""
    good, environments = {}, {}
    for path in paths:
        try:
            manifest = read(path)
        except ManifestError:
            continue
        if manifest.get("environment"):  # hundreds of packages, alike in most runs of a machine
            text = repr(manifest["environment"])
            manifest["environment"] = environments.setdefault(text, manifest["environment"])
        good[path] = manifest
    return good


def _fault(value: object, allowed: object, place: tuple[str | int, ...] = ()) -> str | None:
    """Return what is wrong with a value and all that it holds, or None.

    Args:
        value: of the manifest.
        allowed: what the schema says of it.
        place: the keys and numbers under which it stands.
    """
    if isinstance(allowed, list):
        if not isinstance(value, list):
            return _complaint(place, value, "a list")
        parts = ((part, allowed[0], number) for number, part in enumerate(value))
    elif isinstance(allowed, dict):
        if not isinstance(value, dict):
            return _complaint(place, value, "an object")
        name = next((key for key in reversed(place) if isinstance(key, str)), "")
        missing = [key for key in NEEDED.get(name, ()) if value.get(key) is None]
        if missing:
            return f"{_text(place)} has no {missing[0]}"
        parts = ((value[key], kind, key) for key, kind in allowed.items() if value.get(key) is not None)
    else:
        if allowed is NAME:
            right = layout.is_name(value)
        else:
            right = isinstance(value, allowed) and (allowed is TRUTH or not isinstance(value, bool))
        return None if right else _complaint(place, value, NAMES[allowed])
    for part, kind, key in parts:
        # A plain value of the right type is passed over here: thousands of manifests hold a million of them.
        if type(part) is kind or (kind is NUMBER and type(part) in NUMBER):
            continue
        if fault := _fault(part, kind, (*place, key)):
            return fault
    return None


def _text(place: tuple[str | int, ...]) -> str:
    """Return a place as a message names it, such as `conditions[3].gpus`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).removeprefix(".")


def _complaint(place: tuple[str | int, ...], value: object, allowed: str) -> str:
    return f"{_text(place) or 'the whole'} is {json.dumps(value)[:80]}; allowed: {allowed}"
