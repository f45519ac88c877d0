"""What the site shows next to the notebooks: the start page, all points, and the data."""

import datetime
import json
from pathlib import Path
from urllib.parse import quote

import jinja2
import markupsafe
import numpy
import pandas
import yaml

from benchbook.judging import agreement, confirmation, statistics
from benchbook.machine import identity, layout
from benchbook.record import chips, estimates, observations, pairs, predict
from benchbook.report import costs, tables
from benchbook.rows import ceilings, records
from benchbook.running import kernel

SIDES = ["product", "product_over", "family"]
VERSION = 2  # of the data; it rises when a meaning changes
LICENCE = "MIT; published figures and prices belong to the sources that each line names"


def files(merged) -> dict[str, str]:
    """Return the parts of pages and the data, by path below the folder of figures and tables.

    Args:
        merged: the aggregation.
    """
    summary, measured = merged.evidence.summary, merged.evidence.measured
    made = {"commit": identity.commit(), "made": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"}
    made |= {"citation": citation(summary)}
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    templates = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    usual = merged.costs[merged.costs["task"].eq(costs.tasks()[0].key)]
    usual = usual[usual["devices"].eq(1)].fillna({"rent": ""}).to_dict("records")
    start = templates.get_template("start.html").render(
        machines=[merged.evidence.names.machine(name) for name in sorted(set(summary["machine"]))],
        points=len(summary), days=_days(summary), accelerators=sorted(set(summary["device"].dropna()) - {"cpu"}),
        repository=identity.repository(), tasks=costs.tasks(), families=observations.FAMILIES,
        usual=costs.fastest(usual), **made,
    )  # fmt: skip
    yours = merged.evidence.yours
    known, sources = summary.to_dict("records"), layout.notebooks()
    shown = {
        "summary": summary.assign(
            day=summary["session"].astype(str).map(statistics.day),
            notebook=[
                _notebook(line, sources.get(line["study"]), line["machine"] in yours)
                for line in known
            ],
        ),
        "machines": merged.machines,
        "tuning": confirmation.table(measured),
    }
    shown |= {"parity": agreement.verdicts(measured)}
    shown = {
        name: tables.of_columns(table, name, merged.evidence.names)
        for name, table in shown.items()
        if len(table)
    }
    points = templates.get_template("points.html").render(tables=shown, left_out=merged.left_out)

    # A browser loads a script from a folder as well, unlike JSON.
    marks = f"window.benchbook = {json.dumps(_marks(merged.costs), separators=(',', ':'))};\n"
    written = {
        "pages/start.html": start,
        "pages/points.html": points,
        "pages/_static/marks.js": marks,
    }
    shares = ceilings.shares(summary, merged.evidence.ceilings)
    written |= {"left-out.json": json.dumps(merged.left_out), "shares.json": json.dumps(shares)}
    return written | _data(merged, made)


def _data(merged, made: dict) -> dict[str, str]:
    """Return the data of points, claims and costs as CSV and JSON, by path."""
    document, written = {"version": VERSION, "licence": LICENCE} | made, {}
    published = {
        "points": records.as_text(merged.evidence.summary),
        "claims": merged.claims,
        "costs": merged.costs.drop(columns=["here", "estimate"]),
    }
    for name, table in published.items():
        table = table.convert_dtypes()
        table = table.astype(dict.fromkeys(table.select_dtypes("object"), "string"))
        written[f"data/{name}.csv"] = tables.as_csv(table)
        document[name] = json.loads(table.to_json(orient="table", index=False, double_precision=15))
    return written | {"data/data.json": json.dumps(document, ensure_ascii=False)}


def _notebook(line: dict, source: Path | None, is_yours: bool) -> str:
    """Return a link to the notebook of a point: as executed for it, if this computer did, else
    its study's; empty for a study without one."""
    if source is None:
        return ""
    page = kernel.executed() / source.name
    own = kernel.kept_page(line["study"], line["point"])
    if is_yours and own.exists() and kernel.shown(page)[1] != line["point"]:
        page = own
    name = page.relative_to(kernel.executed()).with_suffix("")
    link = markupsafe.Markup('<a href="{}.html">{}</a>')
    return link.format(quote(str(name)), source.stem)


def _marks(of_tasks: pandas.DataFrame) -> dict:
    """Return what the start page's script compares: costs, published pairs and their works, the
    names of chips, and the factors of ratios.

    A table is its columns and its lines, whose cells are places in `values`, so that each value
    stands there once.
    """
    values: dict[object, int] = {}

    def placed(cell: object) -> int:
        return values.setdefault(cell, len(values))

    def packed(table: pandas.DataFrame) -> dict:
        table = table.map(lambda cell: float(f"{cell:.6g}") if isinstance(cell, float) else cell)
        split = json.loads(table.to_json(orient="split", index=False))
        lines = [[*map(placed, line)] for line in split["data"]]
        return {"columns": split["columns"], "lines": lines}

    timed = {task.work_name: task.key for task in costs.tasks() if not task.metric}
    faster = [
        {"product": product, "over": over, "family": family, "task": key}
        | {"value": ratio.value, "low": ratio.low, "high": ratio.high, "basis": ratio.basis}
        for (product, over, family), own in pairs.table().groupby(SIDES)["task"]
        if product < over
        for work, key in [*timed.items(), ("", "")]
        if work in {*own, ""} and (ratio := estimates.of_pairs(product, over, family, work))
    ]
    nearest = {}
    for task in costs.tasks():
        if task.described.sequence_length:
            nearest[task.key] = {
                chip: placed(predict.nearest_rate(costs.question(task, chip, "half")))
                for chip in chips.table()["product"].unique()
                if chips.listed(chip)
            }
    works = pairs.works().assign(
        group=lambda table: table.groupby(list(pairs.KEY), sort=False).ngroup()
    )
    works = works[["group", "article", "work", "family", "unit", "product", "value", "speed"]]
    samples = {task.key: task.samples for task in costs.tasks()}
    seconds = [
        samples[key] / numpy.array([each.high, each.low, each.expected])
        for key, each in of_tasks[["task", "estimate"]].itertuples(index=False)
    ]
    marks = of_tasks.drop(columns=["machine", "estimate"]).assign(here=of_tasks["here"].astype(int))
    marks[["least", "most", "expected"]] = seconds
    factors = {
        kind: own.set_index("group")["above"].to_dict()
        for kind, own in estimates.bounds().reset_index(drop=True).groupby("kind")
    }
    return {
        "marks": packed(marks), "pairs": packed(pandas.DataFrame(faster)), "works": packed(works),
        "ignored": sorted(chips.SERIES | chips.VENDORS), "around": chips.AROUND,
        "families": observations.FAMILIES, "values": list(values),
        "chips": chips.table()[["product", "aliases", "vendor"]].T.to_dict("list"),
        "forms": estimates.FORMS, "factors": factors, "near": estimates.NEAR, "nearest": nearest,
    }  # fmt: skip


def citation(points: pandas.DataFrame) -> str:
    """Return how to cite the report, with the days and commits of its measured points."""
    this = yaml.safe_load((layout.root() / "CITATION.cff").read_text(encoding="utf-8"))
    authors = ", ".join(author["name"] for author in this["authors"])
    head = f"{authors}: {this['title']}. benchbook {this['version']}."
    commits = sorted(set(points["commit"].dropna().astype(str)))
    return f"{head} Measured {_days(points)}, commit {', '.join(commits)}." if len(points) else head


def _days(points: pandas.DataFrame) -> str:
    """Return the first and last day."""
    days = statistics.days(points)
    return " to ".join(dict.fromkeys(days[:1] + days[-1:]))
