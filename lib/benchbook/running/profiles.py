"""Turn a profile's YAML file into the points of this machine.

A profile names, for each study, its points; a list as a parameter's value stands for one point each. A list of
frameworks stands for those that are installed, and a list of devices for those that are there.
"""

import ast
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ValidationError

from benchbook.frameworks import devices, survey
from benchbook.judging import statistics
from benchbook.machine import layout
from benchbook.machine.kinds import KINDS
from benchbook.rows import manifests, records
from benchbook.rows.points import BUDGET, FILES, budget, declared, in_notebook, point_name, setting
from benchbook.rows.schema import complaint, quoted
from benchbook.running import profile_files

VERBOSE = "BENCHBOOK_VERBOSE"  # if this is set, output shows the ids of points
CALIBRATION = "calibrate"  # the study of ceilings
UNATTENDED = {"try_seconds": 0.0, "explore": False}  # of a budget, unless a profile sets them
# A point's limit is longer by this where kernels are compiled when they are first used: TensorFlow warns of 30 minutes.
FIRST_USE_SECONDS = 45 * 60
# How long a run of another machine's point may take here: as many times what it took there, or so many minutes.
LIKE_FACTOR, LIKE_MINUTES = 10, 30


@dataclass(frozen=True)
class Point:
    """One setting of a study's parameters on one device.

    Attributes:
        study, name: the study, and the point's readable name ending in a hash of what differs from the defaults.
        parameters: every parameter the notebook declares, defaults included.
        num_kernels: how many runs it gets, each in a kernel of its own.
        time_limit_seconds: how long one run may take.
    """

    study: str
    name: str
    parameters: dict
    num_kernels: int
    time_limit_seconds: int

    def __post_init__(self) -> None:
        layout.check_name(self.study, "study")
        layout.check_name(self.name, "point")

    @property
    def key(self) -> tuple[str, str]:
        """Return study and name, which no other point has."""
        return self.study, self.name

    @property
    def title(self) -> str:
        """Return the study's title and the settings, for people; with VERBOSE the ids."""
        from benchbook.studies import title  # imports matplotlib, which planning does not need

        if os.environ.get(VERBOSE):
            return f"{self.study}: {self.name}"
        return f"{title(self.study)}: {setting(self.name)}"


def read(
    profile: str, studies: str = "all", device: str = "all", kinds: Callable[[str], tuple[str, ...]] = survey.kinds
) -> list[Point]:
    """Return the points of a profile, in the order they run; no framework is imported.

    Args:
        profile: name of a file in notebooks/profiles.
        studies: names separated by blanks, or all.
        device: one kind, or all; it replaces `device: all` and `device: best` in the profile.
        kinds: returns the kinds of device that a framework has where the points will run; default: here.

    Raises:
        ValueError: an unknown profile, study or parameter, or a value of another type than declared.
        DeviceUnavailable: a study that was named has neither its framework nor its device here; of all studies such
            are left out, unless none remains.
    """
    path = layout.profile(profile)
    content = profile_files.read(path)
    chosen = list(content) if studies == "all" else studies.split()
    unknown = [study for study in chosen if study not in content]
    if unknown or not chosen:
        name = repr(unknown[0]) if unknown else "with an empty name (studies is empty)"
        raise ValueError(f"profile {profile} has no study {name}; allowed: all, {', '.join(content)}")
    for study in chosen:
        _check_parameters(path.name, study, content)
    points, missing = {}, None
    for study in chosen:
        try:
            points |= {(study, point.name): point for point in points_of(study, content[study], device, kinds)}
        except devices.DeviceUnavailable as error:
            missing = error
            if studies != "all":
                raise
    if missing and not points:
        raise missing
    return _calibrate_when_needed(list(points.values()))


def like(
    machine: str,
    studies: str,
    device: str,
    kinds: Callable[[str], tuple[str, ...]],
    say: Callable[[str], object],
) -> list[Point]:
    """Return the points of a machine's last sessions, to be run here: those on an accelerator on the one that is here.

    Args:
        machine: whose rows and manifests are in the outputs folder.
        studies, device, kinds: see `read`.
        say: called with a line for each point that cannot be run here.

    Raises:
        ValueError: the machine has no rows of these studies, or none of its points can be run here.
    """
    folder = layout.runs(machine)
    rows = records.gather(records.find(folder), say)
    chosen = layout.notebooks() if studies == "all" else studies.split()
    last, described, points = statistics.newest(rows[rows["study"].isin([*chosen])]), manifests.every(folder), {}
    if last.empty:
        there = ", ".join(sorted(path.name for path in folder.parent.glob("*") if path.is_dir())) or "none"
        raise ValueError(f"machine {machine!r} has no rows of studies {studies}; machines with a folder: {there}")
    for (study, name), own in last.sort_values("run_id").groupby(["study", "point"], sort=False):
        runs = own["run_id"].unique()
        manifest = described.get(runs[-1]) or {}
        longest = max(LIKE_MINUTES, LIKE_FACTOR / 60 * (manifest.get("process_seconds") or 0))
        try:
            entry = {"points": [_choices_of(study, manifest.get("parameters") or {})], "num_kernels": len(runs)}
            found = points_of(study, entry | {profile_files.LIMIT: longest}, device, kinds)
            points |= {point.key: point for point in found}
            reason = "" if found else "no such framework or device here"
        except ValueError as error:
            reason = str(error)
        if reason:
            say(f"Left out: {study}: {setting(name)} ({reason})")
    if not points:
        raise ValueError(f"machine {machine!r}: none of its points can be run here")
    order = [*layout.notebooks()]
    return _calibrate_when_needed(sorted(points.values(), key=lambda point: order.index(point.study)))


def _choices_of(study: str, parameters: dict) -> dict:
    """Return a manifest's parameters as a profile would give them, for any machine."""
    if "device" not in parameters:
        raise ValueError("its manifest has no parameters")
    for name in FILES & parameters.keys():
        if ".py:" in str(parameters[name]):
            raise ValueError(f"{name} {parameters[name]!r} is a file of that machine's user")
    is_cpu = parameters["device"] == "cpu"
    choices = {name: value for name, value in parameters.items() if name in declared(study)}
    choices["device"] = [kind for kind in KINDS if (kind == "cpu") == is_cpu]
    return choices | ({"framework": [choices["framework"]]} if "framework" in choices else {})


def _calibrate_when_needed(points: list[Point]) -> list[Point]:
    """Return the points with each framework's calibration right before the first study that computes with it.

    The first study's answer then waits for no other framework. A calibration that no study needs keeps its place.
    """
    ordered = [point for point in points if point.study != CALIBRATION]
    for point in reversed([point for point in points if point.study == CALIBRATION]):
        framework = point.parameters.get("framework", "torch")
        users = [other.study for other in ordered if other.parameters.get("framework", "torch") == framework]
        first = [other.study for other in ordered].index(users[0]) if users else 0
        ordered.insert(first, point)
    return ordered


def write_points(path: Path, points: list[Point]) -> None:
    """Write points to a file of JSON, for a job of a cluster: it neither resolves a profile nor asks for devices."""
    path.write_text(json.dumps([asdict(point) for point in points], indent=1))


def read_points(path: Path) -> list[Point]:
    """Return the points of a file that `write_points` wrote."""
    return [Point(**point) for point in json.loads(path.read_text())]


def studies(profile: str) -> list[str]:
    """Return the studies of a profile in its order."""
    return list(profile_files.read(layout.profile(profile)))


def rounds(points: list[Point]) -> list[tuple[Point, int]]:
    """Return every kernel of every point in the order they run: A B C, C B A, A B C within a study.

    Points of a study are compared as ratios; alternating, a machine that grows warm or busy slows all of them alike.

    Args:
        points: in the profile's order.

    Returns:
        Pairs of a point and its kernel's number, from 1.
    """
    order = []
    for _, group in itertools.groupby(points, key=lambda point: point.study):
        study = list(group)
        for kernel in range(1, max(point.num_kernels for point in study) + 1):
            turn = study if kernel % 2 else reversed(study)
            order += [(point, kernel) for point in turn if kernel <= point.num_kernels]
    return order


def collect(study: str, names: dict) -> dict:
    """Return a notebook's present parameters by name, with the keys of its budget.

    papermill only warns of a parameter that the notebook does not declare, and would measure with the defaults.

    Args:
        study: the study.
        names: the notebook's `globals()`.

    Raises:
        ValueError: papermill was given a parameter that is not declared, or one has another type.
    """
    flat(study, _injected(names.get("In", ())))
    return declared(study) | flat(study, {name: names[name] for name in in_notebook(study)})


def flat(study: str, parameters: dict) -> dict:
    """Return checked parameters of a notebook, with the keys of the budget in place of `budget`.

    Args:
        study: the study.
        parameters: some of those that the notebook declares; `budget` is a dict of keys, or the name of a profile.

    Raises:
        ValueError: an unknown parameter, key or profile, or a value of another type; says what is allowed.
    """
    own, keys = in_notebook(study), budget(study)
    unknown = next((name for name in parameters if name not in own), None)
    if unknown in keys:
        raise ValueError(
            f"{study}: {unknown} is a key of budget; allowed: budget={{{unknown!r}: {parameters[unknown]!r}}}"
        )
    if unknown is not None:
        raise _unknown(f"{study} has no parameter", unknown, parameters[unknown], own)
    plain = {name: value for name, value in parameters.items() if name != BUDGET}
    inside = parameters.get(BUDGET, {})
    if isinstance(inside, str):
        inside = _budget_of(inside, study)
    if not isinstance(inside, dict):
        raise ValueError(f"{study}: budget is {quoted(inside)}; allowed: a profile's name or a dict of its keys")
    unknown = next((key for key in inside if key not in keys), None)
    if unknown is not None:
        raise _unknown(f"{study}: budget has no key", unknown, inside[unknown], keys)
    check(study, plain | inside)
    return plain | inside


def _budget_of(profile: str, study: str) -> dict:
    """Return the budget that a profile has for all points of a study."""
    content = profile_files.read(layout.profile(profile))
    if study not in content:
        raise ValueError(f"budget {profile!r} has no study {study}; allowed: a profile that has it, or a dict of keys")
    return content[study].get("parameters", {}).get(BUDGET, {})


def _unknown(complaint: str, name: object, value: object, allowed: Iterable[str]) -> ValueError:
    return ValueError(f"{complaint} {quoted(name)} (value {quoted(value)}); allowed: {', '.join(allowed)}")


def _injected(cells: Sequence[str]) -> dict:
    """Return what papermill wrote into a notebook, from the cells that IPython ran: its own begins with a comment."""
    return {
        target.id: ast.literal_eval(node.value)
        for source in cells
        if source.startswith("# Parameters\n")
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        for target in node.targets
    }


def check(study: str, parameters: dict) -> None:
    """Refuse parameters, the keys of a budget among them, that a study does not have, or not with that type.

    Raises:
        ValueError: names the parameter, its value, and what is allowed.
    """
    defaults = declared(study)
    for name, value in parameters.items():
        if name not in defaults:
            raise _unknown(f"{study} has no parameter", name, value, defaults)
        wanted = type(defaults[name])
        right = type(value) is wanted or (wanted is float and type(value) is int)
        if not right or (wanted is float and not math.isfinite(value)):
            raise ValueError(f"{study}: {name} is {quoted(value)}; allowed: a value of type {wanted.__name__}")
        if name == "variant" and value not in records.VARIANTS:
            raise ValueError(f"{study}: variant is {quoted(value)}; allowed: {', '.join(records.VARIANTS)}")
    try:
        manifests.PARAMETERS.validate_python(parameters)  # values that a manifest may not hold are refused
    except ValidationError as error:
        raise ValueError(f"{study}: {complaint(error.errors(include_url=False)[0])}") from error


def points_of(
    study: str, entry: dict, device: str, kinds: Callable[[str], tuple[str, ...]] = survey.kinds
) -> list[Point]:
    """Return the points of one study.

    Args:
        study: its name.
        entry: what a profile says of it, as `profile_files.read` returns it.
        device, kinds: see `read`.
    """
    defaults, points, missing = declared(study), [], None
    defaults |= {name: value for name, value in UNATTENDED.items() if name in defaults}
    for point in entry["points"]:
        choices = {"device": "all"} | _choices(entry, point)
        limit = round(60 * choices.pop(profile_files.LIMIT, entry[profile_files.LIMIT]))
        wanted = choices.pop("framework", defaults.get("framework"))
        try:
            places = _places(wanted, choices.pop("device"), device, kinds)
        except devices.DeviceUnavailable as error:
            if not isinstance(wanted, list):
                raise
            missing = error
            continue
        lists = {name: value if isinstance(value, list) else [value] for name, value in choices.items()}
        for *values, place in itertools.product(*lists.values(), places):
            overrides = dict(zip(lists, values, strict=True)) | place
            check(study, overrides)
            parameters = {name: type(defaults[name])(value) for name, value in (defaults | overrides).items()}
            for name in FILES & parameters.keys():
                if ".py:" in parameters[name]:  # a profile says where a file lies in the project
                    parameters[name] = str(layout.root() / parameters[name])
            name = point_name(study, parameters)
            compiles = kinds is survey.kinds and survey.compiles_first(place["device"], place.get("framework", "torch"))
            longest = limit + (FIRST_USE_SECONDS if compiles else 0)
            points.append(Point(study, name, parameters, entry.get("num_kernels", 1), longest))
    if missing and not points:
        raise missing
    return points


def _choices(entry: dict, point: dict) -> dict:
    """Return what a study and one of its points say, the point's before the study's, with the budget's keys."""
    both = entry.get("parameters", {}), point
    plain = {name: value for part in both for name, value in part.items() if name != BUDGET}
    return plain | {key: value for part in both for key, value in part.get(BUDGET, {}).items()}


def _check_parameters(name: str, study: str, content: profile_files.Mapping) -> None:
    """Refuse a study without a notebook, and a value that its notebook does not declare, before any device is asked.

    Raises:
        ProfileError: names file and line, the value and what is allowed.
    """
    try:
        line = content.lines[study]
        declared(study)
        for point in (content[study].get("parameters", {}), *content[study]["points"]):
            for parameter, values in point.items():
                line = point.lines[parameter]
                for value in values if isinstance(values, list) else [values]:
                    if parameter != profile_files.LIMIT:
                        flat(study, {parameter: value})
        for point in content[study]["points"]:
            line = point.line
            _check_search(_choices(content[study], point))
    except ValueError as error:
        raise profile_files.ProfileError(f"{name}, line {line}: {error}") from error


def _check_search(choices: dict) -> None:
    """Refuse a point that is called tuned without time for a search."""
    variants, limits = (
        value if isinstance(value, list) else [value]
        for value in (choices.get("variant"), choices.get("search_seconds", 1))
    )
    if "tuned" in variants and min(limits) <= 0:
        raise ValueError(f"search_seconds is {min(limits)!r} with variant tuned; allowed: above 0")


def _places(
    frameworks: str | list[str] | None, wanted: str | list[str], chosen: str, kinds: Callable[[str], tuple[str, ...]]
) -> list[dict]:
    """Return framework and device of each place where a point runs; a study without a choice is torch's.

    Of a list of frameworks those that are installed count, with the devices they have; a name alone must be there.
    """
    if frameworks is None:
        return [{"device": kind} for kind in _devices(wanted, chosen, "torch", kinds)]
    several = isinstance(frameworks, list)
    names = [name for name in frameworks if name in devices.installed()] if several else [frameworks]
    places, missing = [], []
    for name in names:
        name = devices.choose_framework(name)
        try:
            places += [{"framework": name, "device": kind} for kind in _devices(wanted, chosen, name, kinds)]
        except devices.DeviceUnavailable as error:
            missing.append(error)
    if missing and len(missing) == len(names):
        raise missing[0]
    return places


def _devices(
    wanted: str | list[str], chosen: str, framework: str, kinds: Callable[[str], tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the kinds a point runs on: the profile's, narrowed to the one the user chose."""
    if isinstance(wanted, list):
        return tuple(kind for kind in kinds(framework) if kind in wanted and chosen in ("all", kind))
    if wanted == "all" and chosen == "all":
        return kinds(framework)
    if wanted not in ("all", "best") and chosen not in ("all", wanted):
        return ()
    refused = survey.ask(framework).refused if kinds is survey.kinds else None  # only of this machine
    return (devices.choose_kind(wanted if chosen == "all" else chosen, kinds(framework), framework, refused),)
