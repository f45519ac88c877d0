"""Tables of the report: numbers as they are read, and as they sort; what is missing is empty."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy
import pandas

from benchbook import studies
from benchbook.judging import wording
from benchbook.record import naming

# The columns of each table that are shown, and what they are called there.
COLUMNS = {
    "headline": {
        "machine": "machine",
        "study": "study",
        "seconds_per_epoch": "one epoch",
        "images_per_second": "images/s",
        "joules_per_image": "J/image",
        "dollars_per_million": "$ per million images",
        "verdict": "verdict",
    },
    "summary": {
        "machine": "machine",
        "study": "study",
        "point": "point",
        "dataset": "data set",
        "samples_per_second": "images/s",
        "low": "low",
        "high": "high",
        "num_windows": "windows",
        "accuracy": "accuracy",
        "energy_per_sample": "J/image",
        "energy_method": "read by",
        "energy_boundary": "of",
        "idle_watts": "idle W",
        "energy_note": "energy note",
        "verdict": "verdict",
        "status": "status",
    },
    "parity": {
        "machine": "machine",
        "study": "study",
        "device": "device",
        "precision": "precision",
        "framework": "framework",
        "framework_version": "version",
        "num_runs": "runs",
        "num_steps": "steps",
        "passed": "agrees",
        "reason": "why",
    },
    "tuning": {
        "machine": "machine",
        "study": "study",
        "framework": "framework",
        "device": "device",
        "promised": "promised",
        "confirmed": "confirmed",
        "outcome": "outcome",
    },
    "frameworks": {
        "machine": "machine",
        "study": "study",
        "variant": "variant",
        "framework": "framework",
        "device": "device",
        "precision": "precision",
        "batch_size": "batch",
        "images_per_second": "images/s",
        "ratio": "of the fastest",
        "verdict": "verdict",
    },
    "claims": {
        "sentence": "claim",
        "published": "claimed",
        "machine": "machine",
        "source": "from",
        "value": "value",
        "verdict": "verdict",
    },
    "machines": {
        "machine": "machine",
        "chip": "chip",
        "cores": "cores",
        "memory_gib": "memory, GiB",
        "accelerator": "accelerator",
        "system": "system",
        "software": "software",
        "condition": "condition",
        "sessions": "sessions",
        "rows": "rows",
    },
    "prediction-errors": {
        "situation": "with",
        "group": "of",
        "rule": "rule",
        "pairs": "pairs",
        "publications": "publications",
        "median_error": "median error",
        "within_2": "within a factor of 2",
        "coverage": "covered",
    },
}
# Names and messages that look like a number, or like NA, stay what they are.
TEXT = ("machine", "place", "chip", "point", "message", "commit", "session", "framework_version", "study", "dataset")
PERCENT = ("median_error", "coverage", "within_2")
# What stands small below a cell.
NOTES = {
    "headline": {
        "machine": "id",
        "study": "setting",
        "images_per_second": "bounds",
        "joules_per_image": "energy_boundary",
    },
    "claims": {"value": "bounds", "verdict": "reason"},
    "summary": {"machine": "id"},
    "parity": {"machine": "id"},
    "machines": {"machine": "id"},
    "tuning": {"machine": "id", "confirmed": "bounds"},
    "frameworks": {"machine": "id", "framework": "framework_version", "ratio": "bounds"},
}
MOST_LINES = 1_000  # of a table in a page, which a browser has to lay out


def read(path: Path) -> pandas.DataFrame:
    """Return a table that the aggregation wrote; one that it did not write is empty."""
    if not path.exists():
        return pandas.DataFrame()
    return pandas.read_csv(path, dtype=dict.fromkeys(TEXT, "string"), keep_default_na=False, na_values=[""])


def lines(path: Path) -> list[dict]:
    """Return a table's lines as dictionaries; a missing value is None."""
    table = read(path)
    return table.astype(object).where(table.notna(), None).to_dict("records")


def names(path: Path) -> dict[str, str]:
    """Return what machines are called, by id, from the table that the aggregation wrote of it; nothing without one."""
    return {line["machine"]: line["name"] for line in lines(path)}


def table(path: Path, name: str, called: Mapping[str, str] | None = None) -> dict:
    """Return a table as a template shows it.

    Args:
        path: of the CSV.
        name: which columns to show: a key of COLUMNS.
        called: from `names`; a machine that is not among them goes by its id.

    Returns:
        `columns`: name, header and whether it holds numbers. `lines`: of each cell its text, a note or nothing, and
        `order`, all digits of a number; of very many lines the first. `count`: of all lines. No lines where the file
        has none or is not there.
    """
    notes = NOTES.get(name, {})
    content = read(path)
    prepare = {"headline": _headline, "claims": _claims, "tuning": _bounded, "frameworks": _bounded}.get(name)
    content = prepare(content) if prepare else content
    content = content if name == "headline" else _named(content, called or {})
    content = _with(content, *COLUMNS[name], *notes.values())
    shown = wording.filled(content[list(COLUMNS[name])])
    numeric = {column: _is_numeric(content[column]) for column in shown}
    titles = {study.name: study.title for study in studies.every().values()}
    lines = content.head(MOST_LINES).to_dict("records")
    titled = [line | {"study": titles.get(line.get("study"), line.get("study"))} for line in lines]
    return {
        "columns": [{"name": key, "header": COLUMNS[name][key], "numeric": numeric[key]} for key in numeric],
        "lines": [
            [
                _cell(column, read_so[column], numeric[column], line.get(notes.get(column))) | _link(name, column, line)
                for column in numeric
            ]
            for line, read_so in zip(lines, titled, strict=True)
        ],
        "count": len(content),
    }


def _link(name: str, column: str, line: dict) -> dict[str, str]:
    """Return the page that a cell leads to: a claim's own, or the section of a study."""
    if column == "study":
        return {"link": f"index.html#{line['study']}"}
    return {"link": f"claims/{line['id']}.html"} if (name, column) == ("claims", "sentence") and line.get("id") else {}


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def text(value) -> str:
    """Return a value as it is read: numbers with four digits, truth as yes and no, nothing for what is missing."""
    if value is None or pandas.isna(value):
        return ""
    if isinstance(value, (bool, numpy.bool_)):
        return "yes" if value else "no"
    if isinstance(value, float) and abs(value) < 1000:
        return f"{value:,.4g}"
    return f"{value:,.0f}" if isinstance(value, (int, float)) else str(value)


def duration(seconds: float) -> str:
    """Return a time with three digits in the unit that fits: seconds, minutes, hours or days."""
    units = (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800), ("days", 86_400, math.inf))
    unit, length, _ = next(one for one in units if seconds < one[2])
    return f"{float(f'{seconds / length:.3g}'):,g} {unit}"


def _is_numeric(column: pandas.Series) -> bool:
    return pandas.api.types.is_numeric_dtype(column) and not pandas.api.types.is_bool_dtype(column)


def _cell(column: str, value, numeric: bool, note) -> dict:
    if pandas.isna(value):
        shown = ""
    elif column == "dataset":
        shown = naming.dataset(str(value))
    elif column == "seconds_per_epoch":
        shown = duration(value)
    else:
        shown = f"{value:.1%}" if column in PERCENT else text(value)
    return {"text": shown, "note": text(note), "order": f"{value}" if numeric and shown else ""}


def _headline(content: pandas.DataFrame) -> pandas.DataFrame:
    """Return the headline's lines, measured ones first; a published machine says so, and a failure is a verdict.

    A machine goes by its name for people; below it stands the id of one that measured.
    """
    content = _with(content, "machine", "place", "variant", "device", "dataset", "source", "status", "verdict")
    settings = content[["variant", "dataset"]].astype("string")
    settings["dataset"] = settings["dataset"].map(naming.dataset, na_action="ignore")
    published = content["source"] != "measured"
    failed = content["status"].notna() & (content["status"] != "ok")
    ids = content["machine"].astype("string").fillna("")
    return (
        _bounded(content)
        .assign(
            machine=content["place"].astype("string").fillna(ids),
            id=ids.where(~published, "published"),
            setting=[", ".join(line.dropna()) for _, line in settings.iterrows()],
            verdict=content["verdict"].where(~failed, content["status"]),
        )
        .sort_values("source", key=lambda source: source != "measured", kind="stable")
    )


def _named(content: pandas.DataFrame, called: Mapping[str, str]) -> pandas.DataFrame:
    """Return a table whose machines go by their names; `id` holds what a name stands for."""
    if "machine" not in content:
        return content
    ids = content["machine"].astype("string")
    shown = [_name(each, called) if isinstance(each, str) else each for each in ids]
    theirs = pandas.Series(shown, content.index, dtype="string")
    old = content["id"] if "id" in content else ids.where(theirs != ids)
    return content.assign(machine=theirs, id=old)


def _name(machine: str, called: Mapping[str, str]) -> str:
    """Return the names of one machine, or of two that a claim compares."""
    return " / ".join(called.get(part, part) for part in machine.split(" / "))


def _claims(content: pandas.DataFrame) -> pandas.DataFrame:
    """Return the claims' lines; that nobody measured a claim is a line only where the claim has no other."""
    content = _with(content, "id", "verdict")
    judged = content["verdict"] != "not measured here"
    return _bounded(content[judged | ~content["id"].isin(content.loc[judged, "id"])])


def _bounded(content: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table with its bounds and windows in words; bounds that read the same are none."""
    columns = ["low", "high", "num_windows", "interval"]
    bounds = []
    for low, high, count, kind in _with(content, *columns)[columns].itertuples(index=False):
        parts = [f"{text(low)} to {text(high)}" + " (range)" * (kind == "range")] if text(low) != text(high) else []
        parts += [f"n={count:.0f}"] if text(low) and count > 0 else []
        bounds.append(", ".join(parts))
    return content.assign(bounds=bounds)


def _with(content: pandas.DataFrame, *columns: str) -> pandas.DataFrame:
    """Return a table that has these columns; one it lacked is missing throughout."""
    return content.reindex(columns=[*content, *(name for name in columns if name not in content)])
