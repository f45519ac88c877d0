"""Hostile files: whatever they hold, they are read, or refused by one of our own errors."""

import csv
import json
import os
import random
import resource
import shlex
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from benchbook.commands import cli
from benchbook.commands.output import SOME_LEFT_OUT
from benchbook.frameworks import survey
from benchbook.frameworks.devices import Device, DeviceUnavailable
from benchbook.machine import context, layout, temporary
from benchbook.report import aggregation, cleaning, costs, pages, site, tables
from benchbook.rows import manifests, marker, packing, records
from benchbook.running import kernel, profiles, session
from benchbook.studies.checks import CHECKS
from made import strangers
from made.rows import COMMITTED, make_row, write, write_machine
from made.runs import a_run, send

COUNTED = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        [
            "",
            "ok",
            "train",
            "cpu",
            "1e400",
            "-0",
            "{}",
            '{"a": [',
            "[" * 3000,
            "=1+1",
            "\x00",
            "\ud7ff",
        ]
    ),
)
COLUMNS = st.dictionaries(
    st.sampled_from(records.COLUMNS) | st.text(max_size=12), CELLS, max_size=4
)


def refusal(read: Callable, *errors: type[Exception]) -> str | None:
    """Return the message with which something was refused, or None where it was read; other
    errors are faults."""
    try:
        read()
    except errors as error:
        return str(error)
    return None


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


@COUNTED
@given(
    content=st.binary(max_size=400)
    | st.lists(COLUMNS, min_size=1, max_size=3).map(strangers.as_csv)
)
def test_any_file_is_rows_or_is_refused_by_name(tmp_path, content):
    file = tmp_path / "rows.csv"
    file.write_bytes(content)
    message = refusal(lambda: records.merge([file]), records.SchemaError)
    assert message is None or str(file) in message


READERS = {  # of files that others may have written, and the errors with which they refuse one
    "rows.json": (manifests.read, manifests.ManifestError),
    "rows.zip": (packing.read, packing.PackError),
    "rows.ipynb": (cleaning.read, ValueError),
    "rows.running": (marker.read, OSError),
    "page.owner": (kernel.shown, OSError),
    "done": (lambda path: session.is_done(path.parent), OSError),
}


@COUNTED
@given(
    content=st.binary(max_size=200)
    | st.recursive(CELLS, lambda inner: st.lists(inner, max_size=3)).map(as_json)
)
@pytest.mark.parametrize("name", READERS)
def test_any_bytes_end_no_reader(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    reader, error = READERS[name]
    refusal(lambda: reader(tmp_path / name), error)


@COUNTED
@given(
    content=st.text(max_size=200)
    | st.recursive(
        CELLS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    )
    | st.fixed_dictionaries(
        {"mnist_speedup": st.fixed_dictionaries({"time_limit_minutes": CELLS, "points": CELLS})}
    )
)
def test_any_profile_is_read_or_is_refused(tmp_path, monkeypatch, content):
    path = tmp_path / "mine.yaml"
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    monkeypatch.setattr(layout, "profile", lambda name: [path])
    message = refusal(lambda: profiles.read("mine"), ValueError, DeviceUnavailable)
    assert message is None or len(message) < 2000


LONG = "x" * 100_000
# The words of a command, and what its one line holds; {here} is a folder with the files of `place`.
with Path(__file__).with_name("commands.csv").open(newline="") as _file:
    COMMANDS = [(shlex.split(line["words"]), line["expected"]) for line in csv.DictReader(_file)]
COMMANDS += [(words, "... (cut) ...") for words in (["plan", "--profile", LONG], ["plan", LONG])]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Make a folder with files that no command can use."""
    here = tmp_path_factory.mktemp("here")
    (here / "empty.csv").touch()
    for folder in ("folder", "pipes"):
        (here / folder).mkdir()
    for pipe in ("pipe.csv", "pipes/pipe.csv"):
        os.mkfifo(here / pipe)
    return here


@pytest.mark.parametrize(
    ("words", "expected"),
    COMMANDS,
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else "",
)
def test_a_wrong_argument_is_one_line_and_status_2(
    command, place, tmp_path, monkeypatch, words, expected
):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "outputs"))
    status, said = command(*(word.format(here=place) for word in words))
    assert status == 2
    assert said.startswith("error: ")
    assert len(said) < 2200
    assert said.count("\n") == 1
    assert expected in said
    assert not any((tmp_path / "outputs").rglob("*.csv"))


def test_a_full_disk_leaves_nothing_of_an_archive(tmp_path, monkeypatch, command):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "outputs"))
    write_machine(COMMITTED.name, strangers.base())
    path, _ = CHECKS.pack(COMMITTED.name)
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "theirs"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))  # longer files cannot be written
    try:
        status, said = command("add", path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (status, "File too large" in said) == (2, True)
    assert not list((tmp_path / "theirs").rglob("*"))


def test_a_pack_sends_no_message_of_a_failure(outputs):
    secret = "RuntimeError: cannot open ~/me/x at host.example.org with token hf_abc"
    case = {"cells": {"message": secret}, "row": 14}
    write_machine(COMMITTED.name, strangers.changed(strangers.base(), case))
    CHECKS.pack(COMMITTED.name)
    with zipfile.ZipFile(outputs / f"{COMMITTED.name}.zip") as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert not any(
        word in text for text in texts.values() for word in ("hf_abc", "host.example", "~/me")
    )
    sent = [
        strangers.read_csv(text.encode()) for name, text in texts.items() if name.endswith(".csv")
    ]
    assert {line["message"] for lines in sent for line in lines} == {""}


ODD = yaml.safe_load(r"""
["", "0", "-1", "3", "1e308", "1e-300", "inf", "x", "=1+1", "<b>", "[red]", "007", "9999999999999999999999999",
 "[", "{}", "tpu", "jax", "1e18", "1e-12", "9999999999999999", "[a](https://b.example) $x^$", "@SUM(1)", "cuda",
 "tuned", "diverged", "out_of_memory", "evaluate", "confirm", "iou", "cifar10", "imagenet", "rapl", "nvml",
 "{\"sustained_minutes\": 1e308}", "{\"side\": \"tuned\"}", "{\"tried\": \"batch_size\"}",
 "{\"width\": 0, \"epochs\": -1}"]
""")
# Samples, seconds and their rate at the bounds of the schema.
BOUNDS = [
    ("1", "1e12", "1e-12"),
    ("1", "1e-12", "1e12"),
    ("9" * 16, "0.01", "9.999999999999999e17"),
]
DEEP = yaml.safe_load("""
[null, true, 0, -1, 3, 1.0e+308, 1.0e-300, 1000000000000000000000000000000, "",
 "x", "=1+1", "<b>", "007", [], {}, [1], {"a": 1}, ["x"]]
""")


def damaged(content: bytes, is_rows: bool, draw: random.Random) -> bytes:
    """Return a file with a cell, a value or some bytes of it changed."""
    kind = draw.random()
    if kind < 0.1:
        place = draw.randrange(len(content))
        return content[:place] + draw.choice(
            [b"", bytes([draw.randrange(256)]) + content[place + 1 :]]
        )
    if is_rows:
        rows = strangers.read_csv(content)
        if kind < 0.3:
            measures = dict(
                zip(("samples", "seconds", "samples_per_second"), draw.choice(BOUNDS), strict=True)
            )
            return strangers.as_csv(
                [row | (measures if row["seconds"] else {}) | {"steps": ""} for row in rows]
            )
        for row in rows if kind < 0.4 else [draw.choice(rows)]:
            row[draw.choice(list(row)) if kind > 0.4 else draw.choice(records.COLUMNS)] = (
                draw.choice(ODD)
            )
        return strangers.as_csv(rows)
    value = manifest = json.loads(content)
    while True:
        key = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if not isinstance(value[key], dict | list) or not value[key] or draw.random() < 0.2:
            value[key] = draw.choice(DEEP)
            return json.dumps(manifest).encode()
        value = value[key]


@pytest.mark.usefixtures("outputs")
def test_what_is_accepted_a_report_draws_and_the_rest_is_named(tmp_path):
    """Sixteen machines, of each of which a file of two runs is damaged, side by side in one report.

    Half of them have no manifests, which would contradict most of it.
    """
    draw, machines, hurt = random.Random(34), {}, []
    for number in range(16):
        files = strangers.a_machine(number, draw)
        if number % 2:
            files = {place: text for place, text in files.items() if place.endswith(".csv")}
        trained = sorted(
            name for name in files if "calibrate" not in name
        )  # of each run, its rows and its manifest
        for place in (
            draw.choice(trained[: len(trained) // 2]),
            draw.choice(trained[len(trained) // 2 :]),
        ):
            files[place] = damaged(files[place], place.endswith(".csv"), draw)
            hurt.append((f"m{number:03}", Path(place).stem))
        machines[f"m{number:03}"] = files
    for name, files in machines.items():
        runs = write_machine(name, files)
    merged = aggregation.merge(runs)
    merged.write(tmp_path / "figures")
    measured, said = merged.evidence.measured, merged.left_out
    kept = set(zip(measured["machine"].str.partition(" ")[0], measured["run_id"], strict=True))
    refused = [run for run in hurt if run not in kept]
    assert all(any(run_id in line for line in said) for _, run_id in refused)
    assert 6 < len(refused) < 26
    assert len(merged.evidence.summary) > 10
    assert all(drawing._repr_png_() for drawing in merged.drawings.values() if drawing.figure)
    for path in (tmp_path / "figures").rglob("*.csv"):
        with path.open(newline="", encoding="utf-8") as written:
            assert all(
                tables.harmless(cell) == cell for line in csv.reader(written) for cell in line
            ), path


@pytest.mark.parametrize("place", ["crosschecks.by_owner", "pages.files"])
def test_machines_that_end_the_report_are_named_and_left_out_with_their_tracebacks(
    tmp_path, monkeypatch, command, place
):
    def raising(given, *more):
        rows = given.evidence.measured if place == "pages.files" else given
        return make(given, *more) if not broken & {*rows["machine"]} else 1 / 0

    def report() -> Path:
        aggregation.merge(tmp_path / "outputs" / "runs").write(tmp_path / "outputs" / "figures")
        return tmp_path

    broken = {"m1", "m2"}
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "outputs"))
    monkeypatch.setattr(site, "write", report)
    monkeypatch.setattr(aggregation.Aggregation, "drawings", {})
    monkeypatch.setattr(aggregation.Aggregation, "findings", {})
    monkeypatch.setattr(site, "left_out", lambda figures: [])
    monkeypatch.setattr(pages, "files", lambda merged: {"all.txt": "made"})
    module, name = place.split(".")
    make = getattr(getattr(aggregation, module), name)
    monkeypatch.setattr(getattr(aggregation, module), name, raising)
    for number in range(4):
        write(make_row(machine=f"m{number}", run_id=f"run-{number}"))
    with pytest.raises(ZeroDivisionError):  # in tests nothing is left out
        report()
    context.change(strict=False)
    status, said = command("report")
    assert (status, "errors.log" in said) == (1, True)
    merged = aggregation.merge(tmp_path / "outputs" / "runs")
    assert set(merged.evidence.measured["machine"]) == {"m0", "m3"}
    for name in broken:
        said = f"left out: machine {name}: it ends the report (ZeroDivisionError: division by zero)"
        assert said in merged.left_out
    assert "in raising" in (tmp_path / "outputs" / "figures" / "errors.log").read_text()
    monkeypatch.setattr(pages, "files", lambda merged: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # the fault is in no machine
        report()


TOKEN = "planted_by_a_row"
SEEN: list[str] = []


def watch(event: str, details: tuple) -> None:
    """Note what is imported, opened or started by a name that only rows and manifests have."""
    started = event.partition(".")[0] in (
        "import",
        "open",
        "os",
        "subprocess",
        "exec",
        "socket",
        "ctypes",
    )
    if SEEN and started and TOKEN in (text := repr(details)) and SEEN[0] not in text:
        SEEN.append(f"{event}: {text:.200}")


# The words of every command, for a machine whose rows and manifests name things to run.
WALK = """
study --profile smoke --studies mnist_speedup --machine desk --deadline 0
plan --profile smoke --studies mnist_speedup --machine desk
report
validate {here}/outputs/runs
compare desk attic
pack --machine desk
share --machine desk --dry-run
add {here}/outputs/desk.zip
machine
measure x
predict --chip T4 --work resnet50
chips
"""


def test_nothing_that_rows_name_is_imported_called_or_opened(tmp_path, monkeypatch, command):
    (tmp_path / f"{TOKEN}.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "outputs"))
    monkeypatch.setattr(survey, "ask", lambda name: survey.Answer((Device("cpu", "a chip"),)))
    monkeypatch.setattr(survey, "ask_together", set)
    first = costs.tasks()[:1]
    monkeypatch.setattr(costs, "tasks", lambda: first)  # each takes seconds
    named = {
        "network": f"{TOKEN}:call",
        "loader": f"{TOKEN}.py:load",
        "loss": f"{TOKEN}:loss",
        "dataset": f"{TOKEN}",
    }
    named |= {
        "arguments": f"command='id > {TOKEN}'",
        "data_root": f"/{TOKEN}",
        "num_parity_steps": 0,
    }
    texts = dict.fromkeys(
        ("device_name", "framework_version", "commit", "memory_method"), f"{TOKEN}:x"
    )
    columns = {
        "study": "mnist_speedup",
        "model": f"{TOKEN}:net",
        "dataset": f"{TOKEN}",
        "parameters": 12,
    }
    for machine in ("desk", "attic"):
        rows, manifest = a_run(machine=machine, chip=f"/{TOKEN}", asked=named, **columns | texts)
        manifest["environment"] |= {
            "variables": {"LD_PRELOAD": f"/{TOKEN}.so"},
            "python": f"{TOKEN}",
        }
        send(
            [
                (
                    rows,
                    manifest
                    | {
                        "pictures": f"/{TOKEN}",
                        "tuning": {"chosen": TOKEN, "settings": {TOKEN: TOKEN}},
                    },
                )
            ]
        )

    def write() -> Path:  # the notebook's kernel would be another process
        aggregation.merge(tmp_path / "outputs" / "runs").write(tmp_path / "outputs" / "figures")
        return tmp_path / "outputs" / "figures"

    monkeypatch.setattr(site, "write", write)
    walk = {
        words[0]: words
        for line in WALK.strip().splitlines()
        if (words := shlex.split(line.format(here=tmp_path)))
    }
    assert set(walk) == {
        each.name or each.callback.__name__ for each in cli.app.registered_commands
    }
    sys.addaudithook(watch)
    SEEN.append(
        rows[0]["point"]
    )  # the rows themselves are read, and their folder has the parameters in its name
    try:
        ended = {name: command(*words) for name, words in walk.items()}
    finally:
        seen, _ = SEEN[1:], SEEN.clear()
    assert seen == []
    statuses = {name: status for name, (status, _) in ended.items() if status}
    assert statuses == {"study": SOME_LEFT_OUT, "measure": 2}, ended
    assert TOKEN in ended["compare"][1] + ended["share"][1]


BEGINNINGS = ("", ".", "benchbook_", "benchbook-", ".adding-", ".report-", "20260101T000000Z-")
ENDINGS = ("", ".csv", ".json", ".running", ".new", ".log", ".owner", ".zip", ".lock")
NAMES = ("complete", "runs", "old", "site", "report", ".made", ".written", "done", ".session")


def plant(folder: Path, draw: random.Random, depth: int = 0) -> None:
    """Fill a folder with files, folders, links and pipes of names that the library uses too."""
    for _ in range(draw.randrange(4, 12)):
        name = draw.choice(BEGINNINGS) + f"{draw.randrange(16**6):06x}" + draw.choice(ENDINGS)
        path = folder / (draw.choice(NAMES) if depth and draw.random() < 0.4 else name)
        kind = draw.random()
        if path.exists() or path.is_symlink():
            continue
        if kind < 0.4 and depth < 4:
            path.mkdir()
            plant(path, draw, depth + 1)
        elif kind < 0.5:
            path.symlink_to(draw.choice([folder, path, folder / "nowhere", folder.parent]))
        elif kind < 0.55:
            os.mkfifo(path)
        else:
            path.write_bytes(draw.randbytes(draw.randrange(60)))


def look(folder: Path) -> dict[Path, tuple]:
    """Return what lies below a folder, and what is in it."""
    found = {}
    for path in folder.rglob("*"):
        content = path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes()
        found[path] = (path.lstat().st_mode, path.lstat().st_ino, content)
    return found


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_no_command_changes_or_removes_what_the_library_did_not_make(
    tmp_path, monkeypatch, command, seed
):
    outputs, report, draw = tmp_path / "outputs", tmp_path / "outputs/report", random.Random(seed)
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(outputs))
    monkeypatch.setattr(survey, "ask", lambda name: survey.Answer((Device("cpu", "a chip"),)))
    monkeypatch.setattr(survey, "ask_together", set)
    first = costs.tasks()[:1]
    monkeypatch.setattr(costs, "tasks", lambda: first)

    def write() -> Path:  # Sphinx and the notebook's kernel take long
        with site.replacing(report) as place, temporary.folder():
            for name in ("index.html", "docs/words.html", f"docs/{draw.random()}.html"):
                (place / "site" / name).parent.mkdir(parents=True, exist_ok=True)
                (place / "site" / name).write_text(str(draw.random()))
        return report / "index.html"

    monkeypatch.setattr(site, "write", write)
    send([a_run(machine=machine, run_id=f"{machine}-1") for machine in ("desk", "attic")])
    write()
    places = [tmp_path / "temporary", outputs, report, report / "docs"]
    places += [outputs / name for name in ("executed", "state", "figures", "runs/desk/x/y")]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        plant(place, draw)
    monkeypatch.setattr("tempfile.tempdir", str(places[0]))
    own = {outputs / "runs", report, *(path for path in report.rglob("*") if path.is_dir())}
    before = {path: value for path, value in look(tmp_path).items() if path not in own}
    before = {path: value for path, value in before.items() if "html" not in path.suffix}
    before.pop(report / site.WRITTEN)
    for line in WALK.strip().splitlines():
        words = shlex.split(line.format(here=tmp_path))
        status, said = command(*words)
        after = look(tmp_path)
        changed = {path: value for path, value in before.items() if after.get(path) != value}
        assert not changed, (words, said)
        assert (status, words[0]) != (1, said), said


MARKUP = (
    "[free](https://evil.example) ![](x) <b>x</b> `y` $z$ *w* | &amp; # 1. https://evil.example"
)


@COUNTED
@given(
    text=st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60)
    | st.text("\\`*_[]<>()!#+-=.1&$~|@:/w \n\tx", max_size=30)
    | st.just(MARKUP)
)
def test_every_text_is_shown_as_it_is_in_markdown(text):
    for kind in ("commonmark", "gfm-like"):
        reader = MarkdownIt(kind, {"linkify": False})
        tokens = reader.parse(tables.markdown(text))
        inside = [child for token in tokens for child in token.children or ()]
        assert {token.type for token in tokens} <= {"paragraph_open", "inline", "paragraph_close"}
        tags = [child.content for child in inside if child.type == "html_inline"]
        shown = [child for child in inside if child.type != "html_inline"]
        assert {child.type for child in shown} <= {"text", "text_special"}
        assert "".join(child.content for child in shown) == " ".join(text.split())
        assert tags == ["<span>", "</span>"] * text.count("$")
