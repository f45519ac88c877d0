"""Manifests: the schema of the JSON file next to a run's rows, and reading one or all of a folder.

A manifest holds a run's parameters, machine and environment, and the machine's condition before,
during and after the run. Any value may be missing, and unknown keys are allowed.
"""

import codecs
from pathlib import Path
from typing import Annotated, Required

from pydantic import Field, StrictBool, TypeAdapter, ValidationError

from benchbook.machine import layout
from benchbook.rows.files import Say, find, read_plain
from benchbook.rows.schema import (
    Count,
    Index,
    Name,
    Quantity,
    Size,
    Text,
    describe_error,
    open_mapping,
)  # fmt: skip

MAX_BYTES = 2**20  # of one manifest; a run of six windows has 10 kB

# Only values that this library reads are checked; a manifest has many more.
MOST_PROCESSES = 10_000  # of a point in a session
MOST_SECONDS = 1e9  # of a process: 32 years
_TEXTS = list[str] | None
_GPU = {
    Quantity: "others_share thermal_slowdown_seconds",
    _TEXTS: "clock_reasons",
}
_SAMPLE = {
    Required[Quantity]: "awake_seconds elapsed_seconds",
    Quantity: """window_awake_seconds cpu_throttle_seconds cpu_busy_seconds cpu_own_seconds
        cpu_stolen_seconds""",
    Count: """repeat index cpu_throttle_count cpu_cores missing_cores swap_used_bytes
        swapped_in_bytes swapped_out_bytes""",
    StrictBool | None: "low_power_mode translated",
    Text: "power_source thermal_pressure",
    list[open_mapping("Gpu", _GPU)] | None: "gpus",
    dict[str, Quantity] | None: "energy_parts",
}
_PARAMETERS = {
    Text: "variant device framework precision model dataset",
    Size: "batch_size device_count image_size num_images num_windows num_repeats",
    Count: "num_parity_steps sequence_length",
}
Parameters = open_mapping("Parameters", _PARAMETERS)
PARAMETERS = TypeAdapter(Parameters)
_MACHINE = {
    Name | None: "name fingerprint",
    Text: "chip system hypervisor",
    Count: "memory_bytes physical_cores logical_cores usable_cores",
    Quantity: "cpu_quota",
    _TEXTS: "accelerators",
}
_ENVIRONMENT = {Text: "python", dict[str, Text] | None: "packages variables"}
Manifest = open_mapping(
    "Manifest",
    run_id=Text,
    parameters=Parameters | None,
    machine=open_mapping("Machine", _MACHINE) | None,
    environment=open_mapping("Environment", _ENVIRONMENT) | None,
    condition_before=open_mapping("Before", {Quantity: "device_busy"}) | None,
    library=dict[str, Text] | None,
    conditions=list[open_mapping("Sample", _SAMPLE)] | None,
    trials=list[dict] | None,
    tuning=open_mapping(
        "Tuning", chosen=Required[str], settings=Required[dict[str, str | StrictBool]]
    )
    | None,
    misplaced_operations=dict[str, Index] | None,
    first_call_seconds=Quantity,
    # Where the clock was set back meanwhile, macOS tells a negative age.
    process_seconds=Annotated[float, Field(ge=-MOST_SECONDS, le=MOST_SECONDS)] | None,
    waited_seconds=Quantity,
    process=Annotated[int, Field(ge=0, le=MOST_PROCESSES)] | None,
)
_ADAPTER = TypeAdapter(Manifest)


class ManifestError(ValueError):
    """A manifest breaks its schema; the message names the file, the key, the value and what is
    allowed."""


def read(path: Path) -> dict:
    """Return one run's manifest.

    Raises:
        ManifestError: the file cannot be read, is too large or is not JSON, or a value breaks
        the schema.
    """
    try:
        content = read_plain(path, MAX_BYTES).removeprefix(codecs.BOM_UTF8)
        return _ADAPTER.validate_json(content)
    except OSError as error:
        raise ManifestError(f"{path} cannot be read ({error.strerror})") from error
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        if detail["type"] == "json_invalid":
            raise ManifestError(f"{path} is not JSON ({detail['ctx']['error']})") from error
        raise ManifestError(f"{path}: {describe_error(detail)}") from error


def read_all(folder: Path, say: Say = str) -> dict[str, dict]:
    """Return the manifest of every run below a folder, by run id; a manifest that breaks the
    schema is left out.

    If a run is in two places, the manifest is that of the rows that `records.gather` keeps. Runs
    with equal environments share one object, which saves memory: each environment has hundreds
    of packages.

    Args:
        folder: of runs; or a file of rows, whose manifest is next to it.
        say: called with a line for each manifest that is left out.
    """
    environments, found = {}, {}
    own = [folder.with_suffix(".json")]
    for path in find(folder, "json")[0] if folder.is_dir() else filter(Path.exists, own):
        try:
            manifest = read(path)
        except ManifestError as error:
            say(f"Manifest not used: {error}".replace(f"{layout.outputs()}/", ""))
            continue
        if manifest.get("environment"):
            manifest["environment"] = environments.setdefault(
                repr(manifest["environment"]), manifest["environment"]
            )
        if path.stem not in found or written_at(path) < written_at(found[path.stem][0]):
            found[path.stem] = path, manifest
    return {run_id: manifest for run_id, (_, manifest) in found.items()}


def written_at(path: Path) -> tuple[int, Path]:
    """Return the key that sorts copies of a run, the first copy first: when its rows were
    written, then their path."""
    rows = path.with_suffix(".csv")
    return (rows if rows.exists() else path).stat().st_mtime_ns, rows
