"""The conditions of a figure and its citation. Both depend on rows alone, not on the time of the report."""

import functools

import pandas
import yaml

from benchbook.judging import verdicts
from benchbook.machine import layout, libraries
from benchbook.record import articles, naming

_printed = functools.cache(articles.rows)  # not every report has a figure that needs them


def figure(name: str, title: str, study: str, table: pandas.DataFrame, summary: list[dict]) -> dict[str, str]:
    """Return a figure's `conditions` and `citation`.

    Args:
        name: the figure's name.
        title: its title.
        study: the study of its points; empty for several studies.
        table: the data it was drawn from.
        summary: the lines of all measured points, with `called`, the machine's name, if it has one.
    """
    source = table.get("source", pandas.Series("measured", table.index))
    published = table[~source.isin(["measured", "predicted"])]
    machines = set(table.get("machine", pandas.Series(dtype="string"))[source == "measured"].dropna())
    points = [line for line in summary if line["machine"] in machines]
    points = [line for line in points if line["study"] == study] or points
    sources = set()  # names of articles
    if "publication" in published:
        sources = set(published["publication"].dropna())
    elif len(published) and "machine" in published:
        rows = _printed()
        rows = rows[rows["machine"].isin(published["machine"]) & ((rows["study"] == study) | (not study))]
        sources = set(rows["reference"].dropna().astype(str).str.partition("; ")[0])
    sources = sorted(sources)
    sentences = [_measured(points, table[source == "measured"]), f"Published: {', '.join(sources)}" if sources else ""]
    conditions = " ".join(f"{sentence}." for sentence in sentences if sentence)
    citation = _citation(f"{title} (figure {name})", points)
    citation += f" Published figures: {'; '.join(sources)}." if sources else ""
    return {"conditions": conditions, "citation": citation}


def report(summary: list[dict]) -> str:
    """Return the citation of the report, with machines, dates and commits."""
    return _citation(project()["title"], summary)


def counts(summary: list[dict]) -> dict:
    """Return the number of measured machines and points, and the first and last day."""
    return {"machines": len(_values(summary, "machine")), "points": len(summary), "dates": _dates(summary)}


def project() -> dict:
    """Return the content of CITATION.cff."""
    return yaml.safe_load((layout.root() / "CITATION.cff").read_text(encoding="utf-8"))


def _citation(title: str, points: list[dict]) -> str:
    """Return a citation: authors, year, title, version, and the machines, dates and commits of the points."""
    this, days = project(), _dates(points)
    authors = ", ".join(author["name"] for author in this["authors"])
    head = f"{authors}{f' ({days[-10:-6]})' if days else ''}: {title}. benchbook {this['version']}."
    commits = ", ".join(_values(points, "commit"))
    return f"{head} Measured on {_machines(points)}, {days}, commit {commits}." if points else head


def _measured(points: list[dict], table: pandas.DataFrame) -> str:
    """Return the conditions of measured points as a sentence without its full stop."""
    if not points:
        return ""
    software = [(line["framework"], line["framework_version"]) for line in points if line["framework"]]
    frameworks = sorted({f"{libraries.WORDS[name]} {version}" for name, version in software})
    windows = table["num_windows"].dropna() if "num_windows" in table else pandas.Series(dtype=float)
    found = [line["verdict"] for line in points]
    unproven, unstable = (sum(map(is_so, found)) for is_so in (verdicts.is_unproven, verdicts.is_unstable))
    spans = " to ".join(dict.fromkeys(f"{end:.0f}" for end in (windows.min(), windows.max()) if len(windows)))
    parts = [
        f"Measured on {_machines(points)}",
        ", ".join(sorted(set(map(naming.device_word, _values(points, "device"))))),
        ", ".join(frameworks),
        f"data {', '.join(sorted(set(map(naming.dataset, table['dataset'].dropna()))))}" if "dataset" in table else "",
        f"{spans} windows a point" if spans else "",
        _dates(points),
        f"commit {', '.join(_values(points, 'commit'))}",
        f"{unproven} of {len(points)} points unproven" if unproven else "",
        f"{unstable} of {len(points)} points unstable" if unstable else "",
    ]
    return "; ".join(part for part in parts if part)


def _machines(points: list[dict]) -> str:
    return " and ".join(sorted({line.get("called") or f"{line['machine']} ({line['chip']})" for line in points}))


def _values(points: list[dict], column: str) -> list[str]:
    return sorted({str(line[column]) for line in points if line.get(column) is not None})


def _dates(points: list[dict]) -> str:
    """Return the first and last day; names of sessions, such as 20261121T195434Z-b30fb1d8, begin with their day."""
    days = sorted({name[:8] for name in _values(points, "session") if name[:8].isdigit()})
    ends = [f"{day[:4]}-{day[4:6]}-{day[6:]}" for day in (days[0], days[-1])] if days else []
    return " to ".join(dict.fromkeys(ends))
