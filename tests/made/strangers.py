"""Committed runs as strangers may send them, with changes; strangers.yaml has cases."""

import csv
import io
import json
import os
import random
import re
from pathlib import Path

import yaml

from made.rows import COMMITTED

FIRST, SECOND, CEILINGS = (
    "20261122T041032Z-c2bed654",
    "20261122T042629Z-8d79fb95",
    "20261122T040919Z-41454362",
)
Files = dict[str, bytes]  # by path below the machine's folder


class Loader(yaml.SafeLoader):
    """Reads a text and a number, marked by !times, as that text so many times."""


def _times(loader: Loader, node: yaml.Node) -> str:
    text, count = loader.construct_sequence(node)
    return text * count


Loader.add_constructor("!times", _times)


def cases() -> dict[str, dict]:
    """Return the cases of strangers.yaml by name."""
    text = Path(__file__).parents[1].joinpath("strangers.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader)


def base() -> Files:
    """Return two runs of a point, FIRST and SECOND, and a calibration, with their manifests."""
    paths = [path for run in (FIRST, SECOND, CEILINGS) for path in COMMITTED.glob(f"*/*/{run}.*")]
    paths = [path for path in paths if path.suffix in (".csv", ".json")]
    return {str(path.relative_to(COMMITTED)): path.read_bytes() for path in paths}


def read_csv(content: bytes) -> list[dict]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def as_csv(rows: list[dict]) -> bytes:
    """Return rows as a CSV of all columns that any of them has."""
    text = io.StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


def changed(files: Files, case: dict) -> Files:
    """Return files with the changes of a case to the first run."""
    own = {path[-5:].partition(".")[2]: path for path in files if FIRST in path}
    files = {path: text for path, text in files.items() if path[-5:] != case.get("without")}
    if case.get("cells"):
        rows = read_csv(files[own["csv"]])
        for number, line in enumerate(rows, 2):
            line |= case["cells"] if case.get("row", 8) in ("all", number) else {}
        files[own["csv"]] = as_csv(rows)
    if case.get("manifest"):
        manifest = json.loads(files[own["json"]])
        for name, value in case["manifest"].items():
            old = manifest.get(name)
            both = isinstance(value, dict) and isinstance(old, dict) and value
            manifest[name] = old | value if both else value
        files[own["json"]] = json.dumps(manifest).encode()
    path = own[case.get("in", ".csv")[1:]]
    if path in files:
        pattern, text, count, *_ = *case.get("sub", ("^", "")), 0
        content = re.sub(pattern, lambda _: text, files[path].decode(), count=count)
        files[path] = content.encode(case.get("encoding", "utf-8"), "surrogatepass")
    if "renamed" in case:
        was, now = case["renamed"]
        for path in own.values():
            files[path.replace(was, now)] = files.pop(path).replace(was.encode(), now.encode())
    more = case.get("add", {}) | dict.fromkeys(case.get("copies", ()))
    for name, text in more.items():
        place = os.path.normpath(f"{Path(own['csv']).parent}/{name.format(FIRST)}")
        files[place] = files[own["csv"]] if text is None else text.encode()
    return files


def a_machine(number: int, draw: random.Random, runs: Files | None = None) -> Files:
    """Return committed runs as those of another machine: its own name, run ids, times and
    memory."""
    files = {}
    for place, content in (runs or base()).items():
        study, point, file = place.split("/")
        run_id = f"{file[:16]}-{number:04x}{file[17:21]}"
        text = (
            content.decode()
            .replace(file.rpartition(".")[0], run_id)
            .replace(COMMITTED.name, f"m{number:03}")
        )
        if file.endswith(".csv"):
            rows = read_csv(text.encode())
            for row in rows:
                row["session"] += f"-{number:04x}"
                factor = draw.uniform(0.98, 1.02)
                for name, power in (("seconds", 1), ("samples_per_second", -1)):
                    row[name] = row[name] and repr(float(row[name]) * factor**power)
                memory = row["peak_memory_bytes"]
                row["peak_memory_bytes"] = memory and int(memory) + draw.randrange(9**6)
            text = as_csv(rows).decode()
        files[f"{study}/{point}/{run_id}.{file.rpartition('.')[2]}"] = text.encode()
    return files
