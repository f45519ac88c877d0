"""The commands that measure this machine, plan that, describe it, and write the report."""

import math
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import pandas
import typer

from benchbook.commands.options import AsJson, number
from benchbook.commands.output import (
    SOME_FAILED,
    SOME_LEFT_OUT,
    say,
    say_json,
    say_table,
    say_wrapped,
    short,
)
from benchbook.frameworks import devices, survey
from benchbook.judging import intervals, statistics, verdicts, wording
from benchbook.machine import condition, context, identity, layout, processes
from benchbook.machine.kinds import KINDS
from benchbook.measuring import failures, sensors
from benchbook.record import prices
from benchbook.running import cluster, kernel, profiles, series, session

REPORT_SECONDS = 60.0  # to reserve for the report before a deadline


def _check_device(kind: str) -> str:
    """Return a kind of device, or all; raise a ValueError for another word."""
    if kind not in ("all", *KINDS):
        raise ValueError(f"device {kind!r}; allowed: all, {', '.join(KINDS)}")
    return kind


Profile = Annotated[str, typer.Option(help="name of a file in notebooks/profiles")]
Studies = Annotated[str, typer.Option(help="names separated by blanks, or all")]
MachineName = Annotated[
    str, typer.Option(help="name of this machine; empty: made from chip and memory")
]
DeviceKind = Annotated[
    str, typer.Option(help=f"{', '.join(KINDS)}, or all of this machine", callback=_check_device)
]


def study(
    profile: Profile = "quick",
    studies: Studies = "all",
    machine: MachineName = "",
    device: DeviceKind = "all",
    retry: Annotated[
        bool, typer.Option("--retry", help="run failed and unstable points again")
    ] = False,
    executor: Annotated[
        str, typer.Option(help="local: this computer; slurm: a job for each study")
    ] = "local",
    deadline: Annotated[
        float, number("seconds until the command ends; what does not fit is left out", 0)
    ] = math.inf,
    state: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Measure this machine, or submit jobs that do, and write the report."""
    until = time.monotonic() - processes.age() + deadline
    context.change(state=state)
    if "MAKELEVEL" in os.environ:  # a study ends with the `make` that started it
        processes.when_gone(os.getppid(), lambda: os.kill(os.getpid(), signal.SIGTERM))
    if executor not in cluster.EXECUTORS:
        raise ValueError(f"executor {executor!r}; allowed: {', '.join(cluster.EXECUTORS)}")
    if executor == "slurm":
        flags = ["--retry"] if retry else []
        flags += ["--deadline", f"{deadline:g}"] if math.isfinite(deadline) else []
        for line in cluster.submit(profile, studies, machine, device, flags):
            say(line)
        say(
            "Next: `squeue --me` shows the jobs. Each writes the report; the same command measures what they leave."
        )
        return
    if words := identity.git_fault():
        say(f"The rows' commit is unknown; git says: {words}")
    name, points = _planned(profile, studies, machine, device)
    left_out = session.measure(points, name, retry, until)
    lines = session.summary(points, name, left_out)
    _show(points, lines, left_out, until)
    entries = profiles.chosen(profile, studies)
    if texts := [
        f"{study} ({entry['left']})" for study, entry in entries.items() if entry.get("left")
    ]:
        say(f"Left to other profiles: {'; '.join(texts)}.")
    if left_out:
        say("Next: run the same command again; it measures the points that were left out.")
        raise typer.Exit(SOME_LEFT_OUT)
    if (lines["status"] != "ok").any():
        say(
            "Next: see the failures above and in the report; --retry (`make study RETRY=1`) runs them again."
        )
        raise typer.Exit(SOME_FAILED)
    say("Next: open the report, and send the rows of this machine: `make share`.")


def plan(
    profile: Profile = "quick",
    studies: Studies = "all",
    machine: MachineName = "",
    device: DeviceKind = "all",
    price: Annotated[
        float, number("US dollars per hour of this machine; 0: unknown", 0, 1e6)
    ] = 0.0,
) -> None:
    """Print a profile's points with their estimates."""
    name, every = _planned(profile, studies, machine, device)
    points = [point for point in every if not series.too_large(point, [])]
    if refused := len(every) - len(points):
        say(f"Not tried, for want of memory: {wording.count(refused, 'point')}.")
    lines = session.estimate_seconds(points, name)
    shown = {
        "point": [point.setting for point in points],
        "processes": lines["num_processes"],
        "estimate": lines["seconds"].map(wording.duration),
        "bounds": [_bounds(line) for line in lines.to_dict("records")],
        "at most": lines["limit_seconds"].map(wording.duration),
    }
    for study, group in pandas.DataFrame(shown).groupby(lines["study"], sort=False):
        say_table(f"{study}, profile {profile}, on {name}", group)
    estimated, most = lines["seconds"].notna().sum(), lines["limit_seconds"].sum()
    total = lines[["seconds", "low", "high"]].sum(min_count=1).to_dict()
    within = f" ({_bounds(total)})" if estimated else ""
    say(
        f"Estimate for {estimated} of {len(lines)} points: {wording.duration(total['seconds'])}{within}."
        f" Limit for all: {wording.duration(most)}."
    )
    ceilings = lines["study"].eq(profiles.CALIBRATION)
    jobs = max(1, lines.loc[~ceilings, "study"].nunique())  # each measures its ceilings first
    hours = (
        lines.loc[~ceilings, "seconds"].sum() + jobs * lines.loc[ceilings, "seconds"].sum()
    ) / 3600
    if estimated:
        say(
            f"As jobs of a Slurm cluster: {wording.number(hours)} node-hours in {wording.count(jobs, 'job')}."
        )
    if price > 0:
        costs = [prices.rent(seconds, price) for seconds in (lines["seconds"].sum(), most)]
        least, most = (wording.price(cost, 3) for cost in costs)
        say(
            f"At {wording.price(price, 3)} an hour: {least} for the estimate, {most} for the limit."
        )


def _bounds(line: dict) -> str:
    """Return the bounds of an estimate in words; empty where it is unknown."""
    bounds = pandas.Series([line["low"], line["high"]])
    return wording.span(bounds, wording.duration) if bounds.notna().all() else ""


def report() -> None:
    """Write the report; name the log of errors, if there is one."""
    say(f"Report: {short(_write_report())}")
    log = layout.outputs() / "figures" / "errors.log"
    if log.exists() and log.stat().st_size:
        say(f"A machine was left out, because of an error that should not happen: {short(log)}")
        raise typer.Exit(1)


def machine(as_json: AsJson = False) -> None:
    """Print what this computer is, and the devices of each framework."""
    values = asdict(identity.identify()) | condition.read()
    lines = []
    for framework in devices.FRAMEWORKS:
        if framework not in devices.installed():
            lines.append({"framework": framework, "remark": "not installed"})
            continue
        try:
            answer = survey.ask(framework)
        except RuntimeError as error:
            lines.append({"framework": framework, "remark": failures.anonymous(str(error))})
            continue
        for device in answer.devices:
            sensor = sensors.open_sensor(device)
            line = {
                "framework": framework,
                "device": device.kind,
                "name": device.name,
                "remark": sensor.reason,
            }
            lines.append(line | {"energy sensor": sensor.method or "none"})
        if answer.refused:
            remark = f"not used: {failures.anonymous(answer.refused.reason)}"
            lines.append({"framework": framework, "device": answer.refused.kind, "remark": remark})
    if as_json:
        say_json({"machine": values, "devices": lines})
        return
    shown = {name: "unknown" if value is None else str(value) for name, value in values.items()}
    say_table("This machine", pandas.DataFrame(shown.items(), columns=["", "This machine"]))
    columns = ["framework", "device", "name", "energy sensor", "remark"]
    say_table("Devices of each framework", pandas.DataFrame(lines, columns=columns))


def _write_report() -> Path:
    from benchbook.report import site

    kernel.check()
    page = site.write()
    for line in site.left_out(layout.outputs() / "figures"):
        say(line)
    if missing := site.missing():
        how = layout.how_to_install(*missing)
        say(f"No pages were written: {', '.join(missing)} missing; `{how}` installs them.")
    return page


def _planned(
    profile: str, studies: str, machine: str, device: str
) -> tuple[str, list[profiles.Point]]:
    """Return the machine's name, and the points of a profile.

    Prints which studies and accelerators are left out, and where kernels are compiled first.

    Raises:
        ValueError: no framework is installed, or no point can run here.
    """
    if not devices.installed():
        how = layout.how_to_install("torch", "torchvision")
        raise ValueError(
            f"no framework is installed; allowed: PyTorch, TensorFlow, JAX, MLX: `{how}`"
        )
    kernel.check()
    name = identity.identify(machine).name
    survey.assume_cpu()
    survey.ask_together(profiles.frameworks(profile, studies))
    points = profiles.read(profile, studies, device, say)
    for framework, answer in survey.ANSWERS.items():
        if answer.error:
            say(f"Left out: all points of {framework}: {answer.error}")
        if answer.refused:
            say(f"Left out: {answer.refused.kind!r} of {framework}: {answer.refused.reason}")
    if not points:
        raise ValueError(
            f"profile {profile!r}, studies {studies!r}, device {device!r}: none of these points can run here;"
            " allowed: another profile, study or device"
        )
    for kind, framework in sorted(
        {(point.parameters["device"], point.framework) for point in points}
    ):
        if survey.compiles_first(kind, framework):
            say(
                f"{framework} has no binaries for this GPU and compiles them once, in its first point, for up to half "
                f"an hour. The limits of its points are {profiles.FIRST_USE_SECONDS // 60} minutes longer."
            )
    return name, points


MARKS = {verdicts.UNSTABLE: "~", verdicts.UNPROVEN: "?", verdicts.CHANGED: "c"}  # others: x
LEGEND = "~ unstable, ? not fully compared with float64, c other data or variables, x failed;"
LEGEND += " + disturbed processes, which do not count"


def _table(lines: pandas.DataFrame, titles: dict[tuple[str, str], str]) -> pandas.DataFrame:
    """Return a session's points for the terminal: rate, half of its interval, processes, and a
    mark of MARKS where its verdict or status has one."""
    shown = []
    for line in lines.to_dict("records"):
        rate, _, _, unit = statistics.in_units(line)
        is_known, verdict = pandas.notna(rate), line["verdict"]
        kind = verdict.kind if verdict and line["status"] == "ok" else line["status"]
        more = f" + {line['num_disturbed']}" if line["num_disturbed"] else ""
        shown.append({
            "point": titles[line["study"], line["point"]],
            "rate": f"{wording.rate(rate)} {unit}/s" if is_known else "",
            "95 %": wording.half_width(line) if line["interval"] == intervals.INTERVAL else "",
            "processes": f"{line['num_processes']}{more}",
            "": MARKS.get(kind, "" if kind in (verdicts.STABLE, verdicts.TOO_FEW, "ok") else "x"),
        })  # fmt: skip
    return pandas.DataFrame(shown)


def _show(
    points: list[profiles.Point],
    lines: pandas.DataFrame,
    left_out: list[tuple[profiles.Point, str]],
    until: float,
) -> None:
    """Print the points left out, write the report if there is time, and print findings."""
    from benchbook import studies  # imports matplotlib, which the other commands do not need
    from benchbook.studies.results import answers
    from benchbook.studies.results.evidence import Evidence

    for reason in dict.fromkeys(reason for _, reason in left_out):
        titles = [point.title for point, own in left_out if own == reason]
        say(f"Left out: {'; '.join(titles)} ({reason})")
    if lines.empty:
        return
    machine = lines["machine"].iloc[0]
    if until - time.monotonic() > REPORT_SECONDS:
        page = _write_report()
        evidence = Evidence.of_machine(machine)
        unsure = lines["verdict"].map(verdicts.is_unstable).astype(bool)
        say_table(
            f"All points of {machine}", _table(lines, {point.key: point.title for point in points})
        )
        say_wrapped(LEGEND)
        for name, each in studies.every().items():
            if name in set(lines["study"]):
                answer = answers.of_study(each, evidence)
                say_wrapped(each.question)
                said = [answer.dated, answers.published(each, evidence)] if answer else []
                said = " ".join(filter(None, said)) or "No point of this machine trained."
                say_wrapped(f"  {said}")
        can_repeat = lines["verdict"].map(verdicts.can_be_repeated).any()
        again = "; `make study RETRY=1` measures them again" if can_repeat else ""
        say(f"Unstable: {unsure.sum()} of {len(lines)}{again}.")
        say(f"Report: {short(page)}")
    else:
        say("No time is left for the report; `benchbook report` (or `make report`) writes it.")
