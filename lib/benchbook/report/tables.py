"""Tables of pages and notebooks: numbers with four digits, missing values empty."""

import json
import math
import re
from urllib.parse import quote

import markupsafe
import numpy
import pandas

from benchbook import studies
from benchbook.judging import wording
from benchbook.machine import libraries
from benchbook.record import naming
from benchbook.record.naming import Names
from benchbook.rows import records, titles

# The shown columns of each table, in their order, and the headers that are not the column's name.
COLUMNS = {
    "summary": "machine study variant framework samples_per_second bounds verdict status device precision dataset"
    " batch_size image_size num_windows accuracy energy_per_sample energy_boundary framework_version message day"
    " notebook rows",
    "result": "samples_per_second bounds accuracy energy_per_sample energy_boundary num_windows dataset verdict",
    "parity": "machine study device precision framework framework_version num_runs num_steps passed reason",
    "tuning": "machine study framework device promised confirmed bounds outcome",
    "machines": "machine id chip cores memory_gib accelerator system notes sessions rows",
}
HEADERS = {
    "samples_per_second": "samples/s",
    "image_size": "pixels",
    "dataset": "data set",
    "passed": "agrees",
}
HEADERS |= {
    "energy_per_sample": "J/sample",
    "energy_boundary": "measured at",
    "memory_gib": "memory, GiB",
}
# Functions that turn the values of a column into words.
WORDS = {"dataset": titles.dataset, "device": naming.device_word, "framework": libraries.WORDS.get}
WORDS |= {name: naming.FORMATS[name] for name in ("precision", "variant")}
# Where a text, or a part of it, begins as a formula does to a spreadsheet; four are full-width:
# https://owasp.org/www-community/attacks/CSV_Injection
FORMULA = re.compile("(?:^|(?<=[;\t\r\n]))(?= *[-=+@\t\r\n\uff1d\uff0b\uff0d\uff20])")

LONGEST = 20  # lines; `points.js` writes those of longer tables, which it also filters
# JupyterLab reads text between two dollar signs of one element as a formula, escaped or not.
DOLLAR = r"<span>\$</span>"
NO_MATHS = ("display.html.use_mathjax", False)  # an option of pandas


def address(machine: str, study: str, point: str) -> str:
    """Return the address of a point's line on the page of all points."""
    return f"points.html#{quote(f'{machine}/{study}/{point}')}"


def of_columns(table: pandas.DataFrame, name: str, names: Names) -> str:
    """Return a table as HTML, in words; a long one as `html` packs it.

    Args:
        table: with columns of COLUMNS; those that are missing or empty are left out.
        name: a key of COLUMNS.
        names: of machines.
    """
    table = table.reset_index(drop=True)
    more = {"id": table["machine"], "machine": table["machine"].map(names.machine)}
    if {"low", "high"} <= set(table):
        more["bounds"] = [_bounds(line) for line in table.to_dict("records")]
    if {"study", "point"} <= set(table):
        more["rows"] = table[["machine", "study", "point"]].agg("/".join, axis=1)
    if "study" in table:
        more["study"] = table["study"].map(studies.title)
    content = table.assign(**more)
    return html(content[[column for column in COLUMNS[name].split() if column in content]], LONGEST)


def html(table: pandas.DataFrame, longest: float = math.inf) -> str:
    """Return a table as HTML, without empty columns and with all text escaped.

    If it has more lines than `longest`, they follow as JSON: the different cells, and for each line
    the places of its cells among them.
    """
    content = shown(table)
    for column in set(WORDS) & set(content):
        content[column] = content[column].map(
            lambda value, word=WORDS[column]: value and word(value)
        )
    content = content.map(markupsafe.escape).rename(
        columns=lambda column: HEADERS.get(column, column.removeprefix("num_").replace("_", " "))
    )
    options = {"index": False, "border": 0, "classes": "points", "justify": "unset"}
    packed = ""
    if len(content) > longest:
        cells: dict[str, int] = {}
        lines = [
            [cells.setdefault(cell, len(cells)) for cell in line]
            for line in content.itertuples(index=False)
        ]
        packed = json.dumps([list(cells), lines], separators=(",", ":"))  # cells are escaped
        packed, content = f'<script type="application/json">{packed}</script>', content[:0]
    with pandas.option_context(*NO_MATHS, "display.max_colwidth", None):
        return re.sub(r">\n\s*<", "><", content.to_html(escape=False, **options)) + packed


def harmless(cell: object) -> object:
    """Return a cell for a CSV: an apostrophe is put before text that a spreadsheet would run as
    a formula, also behind the separators of other countries, at which it divides quoted texts
    too."""
    if not isinstance(cell, str):
        return cell
    try:
        float(cell)
    except ValueError:
        return FORMULA.sub("'", cell)
    return cell


def as_csv(table: pandas.DataFrame) -> str:
    """Return a table as CSV with all digits, and with `harmless` cells."""
    return records.as_text(table).map(harmless).to_csv(index=False, lineterminator="\n")


def markdown(text: str) -> str:
    """Return a text in Markdown that shows every character of it, as one paragraph without
    markup."""
    escaped = re.sub(r"([\\`*_\[\]<>&$~|@]|:(?=//)|(?<=www)\.)", r"\\\1", " ".join(text.split()))
    escaped = re.sub(r"^((?:\d+(?=[.)] ))?)([#+=.)-])", r"\1\\\2", escaped)
    return escaped.replace(r"\$", DOLLAR)


def text(value) -> str:
    """Return a value as text: numbers with four digits, booleans as yes and no, missing values
    as nothing."""
    if value is None or pandas.isna(value):
        return ""
    if isinstance(value, (bool, numpy.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return wording.four_digits(value)
    return value if isinstance(value, str) else str(value)


def shown(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table for a notebook: values as `text` writes them, without empty columns."""
    return wording.filled(table).map(text)


def _bounds(line: dict) -> str:
    """Return a line's bounds, marked if they are a range; bounds that read the same are left
    out."""
    low, high = text(line["low"]), text(line["high"])
    kind = " (range)" if line.get("interval") == "range" else ""
    return "" if low == high else f"{low} to {high}{kind}"
