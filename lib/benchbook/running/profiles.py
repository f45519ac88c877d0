"""Turn a profile's YAML file into the points of this machine.

A profile lists the points of each study. A parameter with a list of values gives one point per
value. A list of frameworks gives one point per installed framework, and a list of devices one
per device of this machine; a name of `kinds.GROUPS` stands for several kinds. With
`device_count: all` every accelerator of the kind trains, and `batch_size` is the images of each.
"""

import ast
import itertools
import json
from contextlib import suppress
from dataclasses import dataclass

from benchbook.frameworks import devices, survey
from benchbook.machine import layout
from benchbook.machine.kinds import GROUPS
from benchbook.rows.files import Say
from benchbook.rows.schema import quoted
from benchbook.running import profile_files
from benchbook.studies.experiments.parameters import (
    BUDGET,
    budget,
    check,
    declared,
    nested,
    point_name,
    require_names,
    title,
)

NOTEBOOK_SECONDS = 300  # of a notebook, outside the processes that it starts
CALIBRATION = "calibrate"  # the study of ceilings
ALL_DEVICES = ("device_count", "all")
UNATTENDED = {"try_seconds": 0.0, "explore": False}  # of a budget, unless a profile sets them
# Added to a point's limit where a framework compiles its kernels at first use: TensorFlow warns of
# 30 minutes.
FIRST_USE_SECONDS = 45 * 60


@dataclass(frozen=True)
class Point:
    """One setting of a study's parameters on one device.

    Attributes:
        study: the study.
        name: the point's readable name, which ends in a hash of what differs from the defaults.
        parameters: every parameter the notebook declares, defaults included.
        time_limit_seconds: of one process.
    """

    study: str
    name: str
    parameters: dict
    time_limit_seconds: int

    def __post_init__(self) -> None:
        layout.check_name(self.study, "study")
        layout.check_name(self.name, "point")

    @property
    def key(self) -> tuple[str, str]:
        """Return study and name, which together identify a point."""
        return self.study, self.name

    @property
    def framework(self) -> str:
        """Return the framework; a study without a choice uses torch."""
        return self.parameters.get("framework", "torch")

    @property
    def limit_seconds(self) -> float:
        """Return the limit of the whole point: of its processes, of one more that compares, and
        of the rest."""
        given = self.parameters
        search = (
            given["search_seconds"]
            if given.get("variant") == "tuned" and "search_seconds" in given
            else 0
        )
        return (
            (given.get("num_processes", 1) + 1) * self.time_limit_seconds
            + search
            + NOTEBOOK_SECONDS
        )

    @property
    def setting(self) -> str:
        """Return the settings in words."""
        return title(self.study, self.parameters)

    @property
    def title(self) -> str:
        """Return the study's title and the settings in words."""
        from benchbook import studies  # its titles import matplotlib, which planning does not need

        return f"{studies.title(self.study)}: {self.setting}"


def read(
    profile: str, studies: str = "all", device: str = "all", say: Say = lambda line: None
) -> list[Point]:
    """Return the points of a profile, in the order they run; no framework is imported.

    Args:
        profile: name of a file in `profiles`.
        studies: names separated by blanks, or all.
        device: one kind, or all; it replaces `device: all` and `device: best` in the profile.
        say: called with a line that names the skipped studies.

    Raises:
        ValueError: an unknown profile, study or parameter, or a value of another type than
        declared.
        DeviceUnavailable: a study that `studies` names lacks its framework or its device here.
        With `all`, such studies
            are skipped, and this is raised only if none remains.
    """
    entries, points, missing = chosen(profile, studies), {}, None
    for study, entry in entries.items():
        try:
            points |= {point.key: point for point in points_of(study, entry, device)}
        except devices.DeviceUnavailable as error:
            missing = error
            if studies != "all":
                raise
    if missing and not points:
        raise missing
    there = {study for study, _ in points}
    absent = [study for study in entries if study not in there]
    if studies == "all" and absent:
        say(f"Skipped (framework or device missing): {', '.join(absent)}")
    return _calibrate_after_first_use(list(points.values()))


def frameworks(profile: str, studies: str = "all") -> set[str]:
    """Return the installed frameworks that a profile names for some studies; see `read`."""
    named = set()
    for study, entry in chosen(profile, studies).items():
        usual = declared(study).get("framework", "torch")
        for point in entry["points"]:
            given = (entry.get("parameters", {}) | point).get("framework", usual)
            for name in _as_list(given):
                with suppress(devices.DeviceUnavailable, ValueError):  # `read` says so
                    named.add(devices.choose_framework(name))
    return named


def chosen(profile: str, studies: str = "all") -> dict[str, dict]:
    """Return a profile's entries for some studies, checked; no framework is asked.

    Args:
        profile, studies: see `read`.

    Raises:
        ValueError: see `read`; it names the file and the key.
    """
    content = profile_files.read(layout.profile(profile))
    names = list(content) if studies == "all" else studies.split()
    unknown = [study for study in names if study not in content]
    if unknown or not names:
        problem = (
            f"profile {profile} has no study {unknown[0]!r}"
            if unknown
            else f"studies is empty: {studies!r}"
        )
        raise ValueError(f"{problem}; allowed: all, {', '.join(content)}")
    entries = {}
    for study in names:
        try:
            for parameters in (content[study].get("parameters", {}), *content[study]["points"]):
                for name, values in parameters.items():
                    for value in _as_list(values):
                        flat(study, {name: 1 if (name, value) == ALL_DEVICES else value})
            entries[study] = content[study]
        except ValueError as error:
            raise ValueError(f"{profile}.yaml: {error}") from error
    return entries


def _calibrate_after_first_use(points: list[Point]) -> list[Point]:
    """Return the points with each framework's calibration right after the first study that uses
    the framework: the first number waits for nothing else.

    A calibration that no study needs comes first.
    """
    ordered = [point for point in points if point.study != CALIBRATION]
    for point in reversed([point for point in points if point.study == CALIBRATION]):
        users = [each for each in ordered if each.framework == point.framework]
        first = [each for each in ordered if users and each.study == users[0].study]
        ordered.insert(ordered.index(first[-1]) + 1 if first else 0, point)
    return ordered


def collect(study: str, names: dict) -> dict:
    """Return a notebook's current parameters by name, with the keys of its budget.

    Given a parameter that the notebook does not have, papermill only warns, and would measure
    the defaults.

    Args:
        study: the study.
        names: the notebook's `globals()`.

    Raises:
        ValueError: a parameter is unknown, missing or not allowed, or the notebook sets it after
        papermill did, because
            its cell has lost the tag.
    """
    shown, notebook = nested(study, declared(study)), layout.notebook(study).name
    flat(study, injected := given(names))
    for name in shown:
        if name not in names:
            raise ValueError(
                f"{notebook} lacks the parameter {name!r}; allowed: {', '.join(shown)}"
            )
        if name in injected and names[name] != injected[name]:
            why = f"{name} is {quoted(names[name])}, though {quoted(injected[name])} was given"
            raise ValueError(
                f"{notebook}: {why}; allowed: a cell of parameters with the tag `parameters`"
            )
    return declared(study) | flat(study, {name: names[name] for name in shown})


def given(names: dict) -> dict:
    """Return the parameters that papermill put into a notebook, from the notebook's `globals()`."""
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for source in names.get(
            "In", ()
        )  # the cells that IPython ran; papermill's cell begins with this comment
        if source.startswith("# Parameters\n")
        for node in ast.parse(source).body
    }


def flat(study: str, parameters: dict) -> dict:
    """Return checked parameters of a notebook, with the keys of the budget in place of `budget`.

    Args:
        study: the study.
        parameters: some of the notebook's parameters; `budget` is a dict of keys, the same as
        JSON (papermill's `-p`
            passes text), or the name of a profile.

    Raises:
        ValueError: an unknown parameter, key or profile, or a value of another type; the message
        names what is allowed.
    """
    keys = budget(study)
    for name, value in parameters.items():
        if name in keys:
            raise ValueError(
                f"{study}: {name} is a key of budget; allowed: budget={{{name!r}: {value!r}}}"
            )
    require_names(f"{study} has no parameter", parameters, nested(study, declared(study)))
    inside = parameters.get(BUDGET, {})
    if isinstance(inside, str) and inside.lstrip().startswith("{"):
        with suppress(json.JSONDecodeError):  # else it is refused as the name of a profile
            inside = json.loads(inside)
    if isinstance(inside, str):
        content = profile_files.read(layout.profile(inside))
        if study not in content:
            allowed = "a profile that has it, or a dict of keys"
            raise ValueError(f"budget {inside!r} has no study {study}; allowed: {allowed}")
        inside = content[study].get("parameters", {}).get(BUDGET, {})
    if not isinstance(inside, dict):
        raise ValueError(
            f"{study}: budget is {quoted(inside)}; allowed: a profile's name or a dict of its keys"
        )
    require_names(f"{study}: budget has no key", inside, keys)
    return check(
        study, {name: value for name, value in parameters.items() if name != BUDGET} | inside
    )


def points_of(study: str, entry: dict, device: str) -> list[Point]:
    """Return the points of one study.

    Args:
        study: its name.
        entry: the study's entry in a profile, as `profile_files.read` returns it.
        device: see `read`.
    """
    defaults, points, limit = declared(study), [], round(60 * entry[profile_files.LIMIT])
    defaults |= {name: value for name, value in UNATTENDED.items() if name in defaults}
    for point in entry["points"]:
        choices, parts = (
            {"device": "all"},
            (entry.get("parameters", {}), point),
        )  # the point's values win
        for part in parts:
            choices |= {name: value for name, value in part.items() if name != BUDGET}
        for part in parts:
            choices |= part.get(BUDGET, {})
        wanted = choices.pop("framework", defaults.get("framework"))
        places = _places(wanted, choices.pop("device"), device)
        for *values, place in itertools.product(*map(_as_list, choices.values()), places):
            overrides = dict(zip(choices, values, strict=True)) | place
            if ALL_DEVICES in overrides.items():
                count = (
                    1
                    if place["device"] == "cpu"
                    else survey.ask(place.get("framework", "torch")).count
                )
                size = overrides.get("batch_size", defaults["batch_size"])
                overrides |= {"device_count": count, "batch_size": count * size}
            parameters = defaults | check(study, overrides)
            name = point_name(study, parameters)
            compiles = survey.compiles_first(place["device"], place.get("framework", "torch"))
            longest = limit + (FIRST_USE_SECONDS if compiles else 0)
            points.append(Point(study, name, parameters, longest))
    return points


def _as_list(value: object) -> list:
    return value if isinstance(value, list) else [value]


def _places(wanted: str | list[str] | None, kind: str | list[str], chosen: str) -> list[dict]:
    """Return framework and device of each place where a point runs; a study without a choice
    uses torch.

    From a list of frameworks, those are taken that are here with such a device. A single name
    must be.
    """
    if wanted is None:
        return [{"device": each} for each in _devices(kind, chosen, "torch")]
    places = []
    for name in _as_list(wanted):
        try:
            name = devices.choose_framework(name)
            places += [{"framework": name, "device": each} for each in _devices(kind, chosen, name)]
        except devices.DeviceUnavailable:
            if not isinstance(wanted, list):
                raise
    return places


def _devices(wanted: str | list[str], chosen: str, framework: str) -> tuple[str, ...]:
    """Return the kinds of device that a point runs on: the profile's, or the chosen one if the
    profile allows it."""
    if isinstance(wanted, list) or wanted in GROUPS:
        named = {kind for name in _as_list(wanted) for kind in GROUPS.get(name, [name])}
        return tuple(
            kind for kind in survey.kinds(framework) if kind in named and chosen in ("all", kind)
        )
    if wanted == "all" and chosen == "all":
        return survey.kinds(framework)
    if wanted not in ("all", "best") and chosen not in ("all", wanted):
        return ()
    here, refused = survey.kinds(framework), survey.ask(framework).refused
    if chosen not in ("all", *here) and not refused:
        allowed = ", ".join(("all", *here))
        raise devices.DeviceUnavailable(
            f"device {chosen!r} is not available to {framework} here; allowed: {allowed}"
        )
    return (devices.choose_kind(wanted if chosen == "all" else chosen, here, framework, refused),)
