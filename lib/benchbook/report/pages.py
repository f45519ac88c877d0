"""What the site shows next to the notebooks: the start page, all points, and the data with their schema."""

import csv
import datetime
import importlib.metadata
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pandas
import yaml

from benchbook import studies
from benchbook.judging import parity
from benchbook.machine import identity, layout
from benchbook.report import costs, site, tables
from benchbook.report.costs import Mark

VERSION = 1  # of the data; it rises when a meaning changes
LICENCE = "MIT; published figures and prices belong to the sources that each line names"
TEXT, NUMBER, FLAG = ({"type": [kind, "null"]} for kind in ("string", "number", "boolean"))
POINT_TEXTS = "machine chip study variant point device framework framework_version precision dataset interval"
POINT_TEXTS += " energy_method energy_boundary verdict status message session commit"
POINT_NUMBERS = (
    "device_count batch_size image_size sequence_length samples_per_second low high num_windows num_processes"
)
POINT_NUMBERS += " accuracy energy_per_sample idle_watts"
CLAIM_TEXTS = "id study article link sentence published unit outcome why arithmetic holds"
COST_TEXTS = "task machine name source family basis chip price fits sources"
COST_NUMBERS = "seconds low high devices memory_gb"
# The published columns by table, with the type of each in JSON Schema.
DATA = {
    "points": dict.fromkeys(POINT_TEXTS.split(), TEXT)
    | dict.fromkeys(POINT_NUMBERS.split(), NUMBER)
    | {"compiled": FLAG},
    "claims": dict.fromkeys(CLAIM_TEXTS.split(), TEXT),
    "costs": dict.fromkeys(COST_TEXTS.split(), TEXT) | dict.fromkeys(COST_NUMBERS.split(), NUMBER),
}


def write(merged, folder: Path) -> None:
    """Write the parts of pages into folder/pages, and the data into folder/data.

    Args:
        merged: the aggregation.
        folder: of figures and tables.
    """
    pages, data = folder / "pages", folder / "data"
    for path in (pages, data):
        path.mkdir(parents=True, exist_ok=True)
    (pages / "start.html").write_text(_start(merged), encoding="utf-8")
    (pages / "points.html").write_text(_points(merged), encoding="utf-8")
    (folder / "marks.js").write_text(_marks(merged.costs), encoding="utf-8")
    (folder / "left-out.json").write_text(json.dumps(merged.left_out), encoding="utf-8")
    published = {"points": merged.evidence.summary, "claims": merged.claims, "costs": cost_table(merged.costs)}
    lines = {name: _lines(table, DATA[name]) for name, table in published.items()}
    for name, own in lines.items():
        with (data / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, DATA[name], lineterminator="\n")
            writer.writeheader()
            writer.writerows({key: tables.harmless(value) for key, value in line.items()} for line in own)
    head = {"version": VERSION, "licence": LICENCE, "citation": citation(merged.evidence.summary)}
    head |= {"commit": identity.commit(), "made": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"}
    (data / "data.json").write_text(json.dumps(head | lines, ensure_ascii=False, indent=0), encoding="utf-8")
    (data / "data.schema.json").write_text(json.dumps(schema(), indent=1), encoding="utf-8")


def schema() -> dict:
    """Return the JSON Schema of data.json."""
    closed = {"type": "object", "additionalProperties": False}
    lines = {
        name: {"type": "array", "items": closed | {"properties": columns, "required": list(columns)}}
        for name, columns in DATA.items()
    }
    head = {name: {"type": "string"} for name in ("licence", "citation", "commit", "made")}
    properties = {"version": {"const": VERSION}} | head | lines
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "What training costs"}
    return draft | closed | {"properties": properties, "required": list(properties)}


def cost_table(marks: Iterable[Mark]) -> pandas.DataFrame:
    """Return the marks as a table with the published columns."""
    lines = [asdict(mark) | {"sources": " | ".join(mark.sources)} for mark in marks]
    return pandas.DataFrame(lines, columns=list(DATA["costs"]))


def citation(points: pandas.DataFrame) -> str:
    """Return how to cite the report, with the days and commits of its measured points."""
    this = yaml.safe_load((layout.root() / "CITATION.cff").read_text(encoding="utf-8"))
    authors = ", ".join(author["name"] for author in this["authors"])
    days, commits = _days(points), sorted(set(points["commit"].dropna().astype(str)))
    head = f"{authors}: {this['title']}. benchbook {this['version']}."
    return f"{head} Measured {days}, commit {', '.join(commits)}." if len(points) else head


def _days(points: pandas.DataFrame) -> str:
    """Return the first and last day; names of sessions begin with their day."""
    days = sorted({name[:8] for name in points["session"].dropna().astype(str) if name[:8].isdigit()})
    ends = [f"{day[:4]}-{day[4:6]}-{day[6:]}" for day in days[:: max(1, len(days) - 1)][:2]]
    return " to ".join(dict.fromkeys(ends))


def _lines(table: pandas.DataFrame, columns: dict) -> list[dict]:
    """Return lines with these columns, as JSON has them: what is missing is None, a verdict is its text."""
    makers = {"string": str, "number": float, "boolean": bool}
    types = {name: makers[column["type"][0]] for name, column in columns.items()}
    return [
        {name: None if pandas.isna(value) else types[name](value) for name, value in line.items()}
        for line in table.reindex(columns=list(columns)).astype(object).to_dict("records")
    ]


def _marks(every: Iterable[Mark]) -> str:
    """Return the marks as a script, which a browser loads from a folder as well, unlike JSON."""
    marks = [
        {
            "task": mark.task, "name": mark.name, "source": mark.source, "family": mark.family, "count": mark.devices,
            "seconds": mark.seconds, "low": mark.low or mark.seconds, "high": mark.high or mark.seconds,
            "time": mark.time, "here": mark.here, "memory": mark.memory_gb and f"{mark.memory_gb:.3g} GB",
            "fits": mark.fits, "price": mark.price, "basis": mark.basis, "sources": list(mark.sources),
        }
        for mark in every
    ]  # fmt: skip
    known = [{key: value for key, value in mark.items() if value not in (None, "", False)} for mark in marks]
    return f"window.benchbook = {json.dumps({'marks': known, 'families': costs.FAMILIES})};\n"


def _start(merged) -> str:
    """Return the start page's part: what has run, and the choice."""
    summary, names = merged.evidence.summary, merged.evidence.names
    kinds = sorted(set(summary["device"].dropna()) - {"cpu"})
    return site.environment().get_template("start.html").render(
        machines=[names.machine(name) for name in sorted(set(summary["machine"]))],
        points=len(summary), days=_days(summary), accelerators=kinds, commit=identity.commit(),
        made=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}", citation=citation(summary),
        repository=_repository(), tasks=costs.TASKS, families=costs.FAMILIES,
    )  # fmt: skip


def _points(merged) -> str:
    """Return the tables of the page of all points."""
    evidence = merged.evidence
    shown = {
        "summary": evidence.summary,
        "machines": merged.machines,
        "tuning": merged.tuning,
        "parity": parity.verdicts(evidence.measured),
    }
    titles = {study.name: study.title for study in studies.every().values()}
    rendered = {
        name: tables.as_html(table, name, evidence.names, titles) for name, table in shown.items() if len(table)
    }
    return site.environment().get_template("points.html").render(tables=rendered)


def _repository() -> str:
    """Return the project's address on GitHub; empty before `make address` has written one."""
    urls = importlib.metadata.metadata("benchbook").get_all("Project-URL") or []
    address = next((url.partition(", ")[2] for url in urls if url.startswith("Repository,")), "")
    return "" if "/_owner_/" in address else address
