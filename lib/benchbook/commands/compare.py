"""The command `compare`: machines and sessions point by point, chips by the best evidence."""

import string
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas
import typer

from benchbook.commands.options import AsJson
from benchbook.commands.output import say, say_json, say_table
from benchbook.judging import compare as comparison
from benchbook.judging import confirmation, wording
from benchbook.loop import results
from benchbook.machine import condition, layout
from benchbook.record import articles, estimates, observations, pairs
from benchbook.record import chips as listed
from benchbook.record import predict as learned
from benchbook.report import costs
from benchbook.studies.checks import CHECKS
from benchbook.studies.experiments import parameters
from benchbook.studies.results.evidence import Evidence

SHOWN = ("chip", "family", "source", "seconds", "low", "high", "basis", "sources")
LETTERS = string.ascii_uppercase  # of the sides, in tables


def compare(
    names: Annotated[
        list[str],
        typer.Argument(help="machines, sessions or chips; or two files of measure --json"),
    ],
    work: Annotated[str, typer.Option(help="the task of chips: resnet50, gpt2, ...")] = "resnet50",
    precision: Annotated[
        str,
        typer.Option(help="one for all chips, such as fp32 or amp_bf16; empty: each its fastest"),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Print how many times as fast the others are as the first."""
    if not 2 <= len(set(names)) == len(names) <= len(LETTERS):
        raise ValueError(f"{' '.join(names)!r}; allowed: two or more different names")
    if all(name.endswith(".json") for name in names):
        _compare_results(*map(Path, names))
        return
    tell = partial(typer.echo, err=True) if as_json else say
    rows, described = CHECKS.read(layout.outputs() / "runs", tell)
    conditions = condition.samples(described)
    try:
        sides = [comparison.rows_of(name, rows, conditions) for name in names]
    except ValueError as fault:
        every = pandas.concat([rows, articles.rows()], ignore_index=True)
        evidence = Evidence(every, conditions)
        _compare_estimates(names, work, precision, evidence, as_json, fault)
    else:
        _compare_points(names, sides, conditions, described, as_json)


def _compare_results(first: Path, *others: Path) -> None:
    """Print how many times as fast the results of other calls of `measure` are."""
    for letter, path in zip(LETTERS[1:], others, strict=False):
        for name, ratio in results.ratios(results.read(first), results.read(path)):
            bounds = wording.bounds(ratio.low, ratio.high, ratio.kind, "{:.3g}".format)
            say(f"{name}: {letter} is {ratio.value:.3g} times as fast as A ({bounds})")


def _compare_points(names, sides, conditions, described, as_json) -> None:
    """Print the points of machines or sessions, and how many times as fast each is as the first."""
    titles = parameters.titles(pandas.concat(sides), described)
    named = dict(zip(LETTERS, names, strict=False))
    tables, alone = {}, []
    for letter, side in zip(LETTERS[1:], sides[1:], strict=False):
        tables[letter], left = comparison.table(sides[0], side, conditions, ("A", letter))
        alone.append(left)
    lines = pandas.concat(
        [table.assign(side=letter) for letter, table in tables.items()], ignore_index=True
    )
    lines["setting"], lines["name"] = lines["point"].map(titles), lines["side"].map(named)
    count, means = comparison.means(list(tables.values()))
    told = [
        mean.columns("ratio")
        | {"side": letter, "name": named[letter], "points": count}
        | {"verdict": comparison.faster(mean, ("A", letter))}
        for letter, mean in zip(tables, means, strict=True)
    ]
    left = [set.intersection(*(set(each["a"]) for each in alone)), *(each["b"] for each in alone)]
    left = {name: sorted(points) for name, points in zip(names, left, strict=True)}
    if as_json:
        shown = ["study", "point", "setting", "name", "a", "b", "ratio", "low", "high"]
        shown = lines[[*shown, "interval", "verdict"]].to_dict("records")
        say_json({"sides": names, "points": shown, "means": told, "alone": left})
        return
    legend = ", ".join(f"{letter} is {name}" for letter, name in named.items())
    for study, group in lines.groupby("study"):
        first = group.drop_duplicates("point").set_index("point")
        shown = pandas.DataFrame({"setting": first["setting"], "A": first["a"].map(wording.rate)})
        for letter, own in group.set_index("point").groupby("side"):
            shown[letter] = own["b"].map(wording.rate)
            shown[f"{letter} / A"] = own.apply(_ratio, axis=1)
        say_table(f"{study}, samples/s: {legend}", shown)
    for mean in told if count > 1 else ():
        say(f"Geometric mean of {count} points: {mean['side']} / A {_ratio(mean)}")
    cores = [comparison.cores(side, described) for side in sides]
    if len(set(cores)) > 1:
        used = [f"{letter} on {each}" for letter, each in zip(named, cores, strict=True)]
        say(f"Computed: {', '.join(used)}.")
    for remark in dict.fromkeys(_remarks(lines, names[0])):
        say(remark)
    for name, points in left.items():
        if points:
            settings = "; ".join(map(titles.get, points))
            say(f"Not compared, because the other side has no such point: {settings} of {name}")


def _ratio(line: Mapping) -> str:
    return "{ratio:.3g} ({low:.3g} to {high:.3g}), {verdict}".format(**line)


def _remarks(lines: pandas.DataFrame, first: str) -> Iterator[str]:
    """Yield what is doubtful of each point, and the energy of both sides."""
    for line in lines.to_dict("records"):
        for side, name in (("a", first), ("b", line["name"])):
            variant, stability = line[f"variant_{side}"], line[f"stability_{side}"]
            if variant in (confirmation.NOTHING_FASTER, confirmation.UNCONFIRMED):
                yield f"{line['setting']} of {name}: {variant}"
            if stability.is_doubtful:
                yield f"{line['setting']} of {name}: {stability}"
        if pandas.notna(line["energy_ratio"]):
            note = f"; {line['energy_note']}" if line["energy_note"] else ""
            ends = line["energy_low"], line["energy_high"], line["energy_interval"]
            times = f"{wording.times(line['energy_ratio'])} times the energy of {first}"
            bounds = wording.bounds(*ends)
            yield f"{line['setting']}: {line['name']} takes {times} per sample ({bounds}{note})"


def _compare_estimates(
    names: list[str],
    work: str,
    precision: str,
    evidence: Evidence,
    as_json: bool,
    fault: ValueError,
) -> None:
    """Print how many times as fast each is as the first, and the time of each.

    Args:
        names: of machines or sessions in the rows, or of chips.
        work: the key of a task, or its network.
        precision: one for all; empty: each has its fastest.
        evidence: the rows of all machines, and the published ones.
        as_json: print JSON.
        fault: why the names are not all of machines.
    """
    task = next((task for task in costs.tasks() if work in (task.key, task.network)), None)
    if task is None:
        raise ValueError(f"work {work!r}; allowed: {', '.join(task.key for task in costs.tasks())}")
    if precision not in ("", *learned.PRECISIONS):
        raise ValueError(f"precision {precision!r}; allowed: {', '.join(learned.PRECISIONS)}")
    family = observations.family_of(precision) if precision else ""
    try:
        sides = _sides(names, task, evidence, family)
    except listed.UnknownChip as unknown:
        raise ValueError(f"{fault}; or a chip: {unknown}") from None
    (first, one), *others = sides.items()
    ratios = {name: _ratios(one, other, family) for name, other in others}
    if as_json:
        shown = [
            {"name": name} | {key: own.get(key) for key in SHOWN} for name, own in sides.items()
        ]
        told = [
            asdict(each) | {"name": name, "over": first} for name in ratios for each in ratios[name]
        ]
        say_json({"work": task.key, "sides": shown, "ratios": told})
        return
    say(f"{task.title}:")
    for name, found in ratios.items():
        for each in found:
            say(f"{each.in_words(name, first)}.")
    for name, line in sides.items():
        if "seconds" in line:
            time = wording.duration_within(line["seconds"], line["low"], line["high"])
            in_family = observations.FAMILIES[line["family"]]
            say(f"  {name}: {time}, {line['source']}, {in_family}; {line['basis']}")
        else:
            asked = costs.question(task, line["chip"], family or "half")
            say(f"  {name}: no time; nearest published {learned.nearest_rate(asked)}")
    for name, other in others:
        for line in pairs.between(one["chip"], other["chip"]).to_dict("records"):
            said = f"{wording.times(line['ratio'])} times: {line['work']}"
            in_family = observations.FAMILIES[line["family"]]
            say(f"  pair of {first} and {name}, {said}, {in_family}; {line['article']}")


def _sides(
    names: list[str], task: costs.Task, evidence: Evidence, family: str = ""
) -> dict[str, dict]:
    """Return the fastest line of `costs.of_task` of each machine, session or chip, in a family of
    precisions or any; a side without one has its chip alone.

    Raises:
        ValueError: two sides are equal, or a name is unknown.
    """
    found, rows = {}, evidence.measured
    measured = costs.of_study(task, evidence, {}) if task.study else []
    for name in names:
        own = rows[(rows["machine"].eq(name) | rows["session"].eq(name)).fillna(False)]
        machines, chip = set(own["machine"]), _chip(name, own)
        sides = [line for line in measured if line["machine"] in machines]
        if not sides:
            name, sides = chip, costs.of_chip(task, chip) if listed.listed(chip) else []
        if name in found:
            raise ValueError(f"{name} twice; allowed: different machines or chips")
        [found[name], *_] = [*costs.fastest(sides, family), {"chip": chip}]
    return found


def _ratios(one: dict, other: dict, family: str) -> list[estimates.Ratio]:
    """Return how many times as fast the other is; without a time of both, by pairs of any work."""
    if "estimate" in one and "estimate" in other:
        return [estimates.ratio(one["estimate"], other["estimate"])]
    families = [family] if family else observations.FAMILIES
    of_pairs = (estimates.of_pairs(one["chip"], other["chip"], each) for each in families)
    return [each for each in of_pairs if each]


def _chip(name: str, own: pandas.DataFrame) -> str:
    """Return the chip of this name, or the one that its rows are of."""
    kinds = own.loc[own["device"] != "cpu", "device_name"], own["chip"]
    names = [each for kind in kinds for each in kind.dropna().unique()]
    found = next(filter(None, map(listed.listed, names)), "")
    return found or (names[0] if names else listed.resolve(name))
