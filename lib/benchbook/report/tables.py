"""Tables of the report: each number as text and as sort key; missing values are empty."""

from collections.abc import Mapping
from pathlib import Path

import numpy
import pandas

from benchbook import studies
from benchbook.judging import verdicts, wording
from benchbook.machine import libraries
from benchbook.record import naming
from benchbook.rows.points import setting

# The columns of each table that are shown, in their order.
COLUMNS = {
    "headline": "machine study seconds_per_epoch images_per_second joules_per_image dollars_per_million verdict",
    "summary": "machine study point dataset samples_per_second accuracy energy_per_sample"
    " energy_method energy_boundary idle_watts energy_note verdict status",
    "parity": "machine study device precision framework framework_version num_runs num_steps passed reason",
    "tuning": "machine study framework device promised confirmed outcome",
    "frameworks": "machine study variant framework device precision batch_size images_per_second ratio verdict",
    "machines": "machine chip cores memory_gib accelerator system software condition sessions rows",
    "support": "machine device framework_version precision compiled status speedup message",
    "prediction-errors": "situation group rule pairs publications median_error within_2 coverage",
}
# The headers of columns; other columns have their names as headers.
HEADERS = {
    "batch_size": "batch",
    "coverage": "covered",
    "dataset": "data set",
    "dollars_per_million": "$ per million samples",
    "energy_boundary": "of",
    "energy_method": "read by",
    "energy_note": "energy note",
    "energy_per_sample": "J/sample",
    "framework_version": "version",
    "group": "of",
    "idle_watts": "idle W",
    "images_per_second": "samples/s",
    "joules_per_image": "J/sample",
    "median_error": "median error",
    "memory_gib": "memory, GiB",
    "num_runs": "runs",
    "num_steps": "steps",
    "passed": "agrees",
    "ratio": "of the fastest",
    "reason": "why",
    "samples_per_second": "samples/s",
    "seconds_per_epoch": "one epoch",
    "situation": "with",
    "speedup": "speed, fp32 = 1",
    "within_2": "within a factor of 2",
}
# Names and messages that look like a number, or like NA, stay what they are.
TEXT = ["machine", "place", "name", "id", "chip", "point", "message", "commit", "session", "framework_version", "study"]
TEXT += ["dataset"]
# How a column's values are written for people.
WORDS = {"dataset": naming.dataset, "device": naming.device_word, "framework": libraries.WORDS.get, "point": setting}
PERCENT = ("median_error", "coverage", "within_2")
# What stands small below a cell, besides a machine's id.
NOTES = {
    "summary": {"point": "point", "samples_per_second": "bounds"},  # of a point its settings in words, and its id
    "headline": {"study": "setting", "images_per_second": "bounds", "joules_per_image": "energy_boundary"},
    "support": {"speedup": "bounds"},
    "tuning": {"confirmed": "bounds"},
    "frameworks": {"framework": "framework_version", "ratio": "bounds"},
}
# A spreadsheet runs such text as a formula: https://owasp.org/www-community/attacks/CSV_Injection
FORMULA = ("=", "+", "-", "@", "\t", "\r")
MOST_LINES = 1_000  # of a table in a page, which a browser has to lay out


def read(path: Path) -> pandas.DataFrame:
    """Return a table that the aggregation wrote; one that it did not write is empty."""
    if not path.exists():
        return pandas.DataFrame()
    table = pandas.read_csv(path, dtype=dict.fromkeys(TEXT, "string"), keep_default_na=False, na_values=[""])
    return verdicts.from_columns(table)


def lines(path: Path) -> list[dict]:
    """Return a table's lines as dictionaries; a missing value is None."""
    table = read(path)
    return table.astype(object).where(table.notna(), None).to_dict("records")


def names(path: Path) -> dict[str, str]:
    """Return what machines are called, by id, from the table that the aggregation wrote of it; nothing without one."""
    return {line["machine"]: line["name"] for line in lines(path)}


def table(path: Path, name: str, called: Mapping[str, str]) -> dict:
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
    names, notes = COLUMNS[name].split(), {"machine": "id"} | NOTES.get(name, {})
    content = read(path)
    if name == "headline":
        content = _headline(content)
    elif "machine" in content:  # by its name; below it what the name stands for
        ids = content["machine"].astype("string")
        theirs = ids.map(lambda each: called.get(each, each), na_action="ignore").astype("string")
        content = content.assign(machine=theirs, id=content["id"] if "id" in content else ids.where(theirs != ids))
    content = _with(_bounded(content) if "bounds" in notes.values() else content, *names, *notes.values())
    shown = wording.filled(content[names])
    types = pandas.api.types
    numeric = {own: types.is_numeric_dtype(shown[own]) and not types.is_bool_dtype(shown[own]) for own in shown}
    titles = {study.name: study.title for study in studies.every().values()}
    lines = []
    for line in content.head(MOST_LINES).to_dict("records"):
        links = {"study": f"studies.html#{line.get('study')}"}
        cells = []
        for column in numeric:
            value = line[column]
            cells.append(
                {"text": _text(column, titles.get(value, value) if column == "study" else value)}
                | {"note": text(line.get(notes.get(column)))}
                | {"order": f"{value}" if numeric[column] and pandas.notna(value) else "", "link": links.get(column)}
            )
        lines.append(cells)
    columns = [{"name": own, "header": HEADERS.get(own, own), "numeric": numeric[own]} for own in numeric]
    return {"columns": columns, "lines": lines, "count": len(content)}


def harmless(cell: object) -> object:
    """Return a cell as a CSV may hold it: text that a spreadsheet would run as a formula begins with an apostrophe."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def text(value) -> str:
    """Return a value as it is read: numbers with four digits, truth as yes and no, nothing for what is missing."""
    if value is None or pandas.isna(value):
        return ""
    if isinstance(value, (bool, numpy.bool_)):
        return "yes" if value else "no"
    if isinstance(value, float) and abs(value) < 1000:
        return f"{value:,.4g}"
    return f"{value:,.0f}" if isinstance(value, (int, float)) else str(value)


def shown(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table for a notebook: values as `text` has them, without columns that are empty throughout."""
    return wording.filled(table).map(text)


def _text(column: str, value) -> str:
    """Return a value as it is read in a column."""
    if pandas.isna(value):
        return ""
    if column in WORDS:
        return WORDS[column](str(value))
    if column == "seconds_per_epoch":
        return wording.duration(value, 3)
    if column == "speedup":
        return wording.number(value)
    return f"{value:.1%}" if column in PERCENT else text(value)


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
    content = content.assign(
        machine=content["place"].astype("string").fillna(ids),
        id=ids.where(~published, "published"),
        setting=[", ".join(line.dropna()) for _, line in settings.iterrows()],
        verdict=content["verdict"].where(~failed, content["status"]),
    )
    return content.sort_values("source", key=lambda source: source != "measured", kind="stable")


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
