"""Tables of the report: each number has a text and a sort key; missing values are empty."""

from collections.abc import Mapping
from pathlib import Path

import numpy
import pandas

from benchbook import studies
from benchbook.judging import verdicts, wording
from benchbook.machine import libraries
from benchbook.record import naming
from benchbook.rows.points import setting

# The shown columns of each table, in their order.
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
# The headers of columns; the header of any other column is its name.
HEADERS = {
    "batch_size": "batch",
    "coverage": "covered",
    "dataset": "data set",
    "dollars_per_million": "$ per million samples",
    "energy_boundary": "measured at",
    "energy_method": "energy method",
    "energy_note": "energy note",
    "energy_per_sample": "J/sample",
    "framework_version": "version",
    "group": "rates of",
    "idle_watts": "idle W",
    "images_per_second": "samples/s",
    "joules_per_image": "J/sample",
    "median_error": "median error",
    "memory_gib": "memory, GiB",
    "num_runs": "runs",
    "num_steps": "steps",
    "passed": "agrees",
    "ratio": "share of the fastest",
    "reason": "why",
    "samples_per_second": "samples/s",
    "seconds_per_epoch": "one epoch",
    "speedup": "speed, fp32 = 1",
    "within_2": "within a factor of 2",
}
# Columns of text: a name or message that looks like a number, or like NA, is still text.
TEXT = ["machine", "place", "name", "id", "chip", "point", "message", "commit", "session", "framework_version", "study"]
TEXT += ["dataset"]
# Functions that turn the values of a column into words.
WORDS = {"dataset": naming.dataset, "device": naming.device_word, "framework": libraries.WORDS.get, "point": setting}
PERCENT = ("median_error", "coverage", "within_2")
# Columns in small print below the cells of another column; a machine always has its id.
NOTES = {
    "summary": {"point": "point", "samples_per_second": "bounds"},  # a point's settings in words, and below them its id
    "headline": {"study": "setting", "images_per_second": "bounds", "joules_per_image": "energy_boundary"},
    "support": {"speedup": "bounds"},
    "tuning": {"confirmed": "bounds"},
    "frameworks": {"framework": "framework_version", "ratio": "bounds"},
}
# Text that begins so is a formula to a spreadsheet: https://owasp.org/www-community/attacks/CSV_Injection
FORMULA = ("=", "+", "-", "@", "\t", "\r")
MOST_LINES = 1_000  # of a table on a page


def read(path: Path) -> pandas.DataFrame:
    """Return a table that the aggregation wrote; a missing file is an empty table."""
    if not path.exists():
        return pandas.DataFrame()
    table = pandas.read_csv(path, dtype=dict.fromkeys(TEXT, "string"), keep_default_na=False, na_values=[""])
    return verdicts.from_columns(table)


def lines(path: Path) -> list[dict]:
    """Return a table's lines as dictionaries; a missing value is None."""
    table = read(path)
    return table.astype(object).where(table.notna(), None).to_dict("records")


def names(path: Path) -> dict[str, str]:
    """Return the names of machines by id, from the aggregation's table; a missing file has none."""
    return {line["machine"]: line["name"] for line in lines(path)}


def table(path: Path, name: str, called: Mapping[str, str]) -> dict:
    """Return a table for a template.

    Args:
        path: of the CSV; a missing file is an empty table.
        name: a key of COLUMNS.
        called: from `names`; a machine that is not among them is shown by its id.

    Returns:
        `columns`: name, header, and whether the column is numeric. `lines`: for each cell its text, note, link, and
        `order` (all digits of a number); at most MOST_LINES. `count`: the number of all lines.
    """
    names, notes = COLUMNS[name].split(), {"machine": "id"} | NOTES.get(name, {})
    content = read(path)
    if name == "headline":
        content = _headline(content)
    elif "machine" in content:  # its name, and its id in small print
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
                {"text": cell_text(column, titles.get(value, value) if column == "study" else value)}
                | {"note": text(line.get(notes.get(column)))}
                | {"order": f"{value}" if numeric[column] and pandas.notna(value) else "", "link": links.get(column)}
            )
        lines.append(cells)
    columns = [{"name": own, "header": HEADERS.get(own, own), "numeric": numeric[own]} for own in numeric]
    return {"columns": columns, "lines": lines, "count": len(content)}


def harmless(cell: object) -> object:
    """Return a cell for a CSV: an apostrophe is put before text that a spreadsheet would run as a formula."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def text(value) -> str:
    """Return a value as text: numbers with four digits, booleans as yes and no, missing values as nothing."""
    if value is None or pandas.isna(value):
        return ""
    if isinstance(value, (bool, numpy.bool_)):
        return "yes" if value else "no"
    if isinstance(value, float) and abs(value) < 1000:
        return f"{value:,.4g}"
    return f"{value:,.0f}" if isinstance(value, (int, float)) else str(value)


def shown(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table for a notebook: values as `text` writes them, without empty columns."""
    return wording.filled(table).map(text)


def cell_text(column: str, value) -> str:
    """Return a value as the text of a cell."""
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
    """Return the lines of the headline table, measured lines first; the verdict of a failed point is its status.

    A machine is shown by its name; in small print below it is its id, or `published`.
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
    """Return a table with a column of bounds and number of windows in words; bounds that read the same are left out."""
    columns = ["low", "high", "num_windows", "interval"]
    bounds = []
    for low, high, count, kind in _with(content, *columns)[columns].itertuples(index=False):
        parts = [f"{text(low)} to {text(high)}" + " (range)" * (kind == "range")] if text(low) != text(high) else []
        parts += [f"n={count:.0f}"] if text(low) and count > 0 else []
        bounds.append(", ".join(parts))
    return content.assign(bounds=bounds)


def _with(content: pandas.DataFrame, *columns: str) -> pandas.DataFrame:
    """Return a table that has these columns; new columns are empty."""
    return content.reindex(columns=[*content, *(name for name in columns if name not in content)])
