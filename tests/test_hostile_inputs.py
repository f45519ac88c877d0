"""Files that nobody made for us: whatever they hold, they are read or refused by one of our own errors."""

import csv
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bad_files
import golden
from benchbook.frameworks.devices import DeviceUnavailable
from benchbook.machine import layout
from benchbook.rows import packing, records
from benchbook.running import profiles
from rows import COMMITTED, make_row

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
    st.sampled_from(["", "ok", "train", "cpu", "1e400", "-0", "{}", '{"a": [', "[" * 3000, "=1+1", "\x00", "\ud7ff"]),
)
COLUMNS = st.dictionaries(st.sampled_from(records.COLUMNS) | st.text(max_size=12), CELLS, max_size=4)


def table(rows: list[dict]) -> bytes:
    """Return rows as a CSV of all columns that any of them has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    quoted = [[json.dumps(name) for name in columns]]
    quoted += [["" if row.get(name) is None else json.dumps(str(row[name])) for name in columns] for row in rows]
    return "\n".join(",".join(line) for line in quoted).encode("utf-8", "surrogatepass")


def refusal(read: Callable, *errors: type[Exception]) -> str | None:
    """Return the message with which something was refused, or None where it was read; other errors are faults."""
    try:
        read()
    except errors as error:
        return str(error)
    return None


@pytest.fixture
def file(tmp_path):
    return tmp_path / "rows.csv"


@COUNTED
@given(content=st.binary(max_size=400) | st.lists(COLUMNS, min_size=1, max_size=3).map(table))
def test_any_file_is_rows_or_is_refused_by_name(file, content):
    file.write_bytes(content)
    message = refusal(lambda: records.merge([file]), records.SchemaError)
    assert message is None or str(file) in message


@COUNTED
@given(changes=COLUMNS)
def test_a_good_row_with_any_cells_changed_is_a_row_or_is_refused(file, changes):
    file.write_bytes(table([make_row(settings="{}") | changes]))
    message = refusal(lambda: records.merge([file]), records.SchemaError)
    assert message is None or (str(file) in message and len(message) < 2000)  # a value is quoted, not echoed whole


@COUNTED
@given(
    members=st.dictionaries(
        st.text(max_size=12) | st.sampled_from(["desk/mnist_speedup/p/Z-r.csv", "../x.csv", "/x.csv", "desk/x.json"]),
        st.binary(max_size=200) | st.just(table([make_row(machine="desk", point="p", run_id="Z-r")])),
        max_size=3,
    ),
    flipped=st.none() | st.integers(0, 300),
)
def test_any_archive_is_added_or_refused_and_changes_nothing_then(tmp_path, monkeypatch, members, flipped):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "outputs"))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name or "x", data)
    whole = bytearray(content.getvalue())
    if flipped is not None:
        whole[flipped % len(whole)] ^= 255
    path = tmp_path / "theirs.zip"
    path.write_bytes(whole)
    before = _files(tmp_path / "outputs")
    message = refusal(lambda: packing.add(path), ValueError)
    assert message is None or _files(tmp_path / "outputs") == before


@COUNTED
@given(
    content=st.text(max_size=200)
    | st.recursive(CELLS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))
    | st.fixed_dictionaries({"mnist_speedup": st.fixed_dictionaries({"time_limit_minutes": CELLS, "points": CELLS})})
)
def test_any_profile_is_read_or_is_refused(tmp_path, monkeypatch, content):
    path = tmp_path / "mine.yaml"
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    monkeypatch.setattr(layout, "profile", lambda name: path)
    message = refusal(lambda: profiles.read("mine"), ValueError, DeviceUnavailable)
    assert message is None or len(message) < 2000


ODD = [
    "",
    "0",
    "-1",
    "3",
    "1e308",
    "1e-300",
    "inf",
    "x",
    "=1+1",
    "<b>",
    "[red]",
    "007",
    "9" * 25,
    "[",
    "{}",
    "tpu",
    "jax",
]
ODD += [
    "cuda",
    "tuned",
    "diverged",
    "out_of_memory",
    "evaluate",
    "confirm",
    "iou",
    "cifar10",
    "imagenet",
    "rapl",
    "nvml",
]
ODD += ['{"sustained_minutes": 1e308}', '{"side": "tuned"}', '{"tried": "batch_size"}', '{"width": 0, "epochs": -1}']
DEEP = [None, True, 0, -1, 3, 1e308, 1e-300, 10**30, "", "x", "=1+1", "<b>", "007", [], {}, [1], {"a": 1}, ["x"]]


def as_csv(rows: list[dict]) -> bytes:
    """Return rows of the same columns as a CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def a_machine(number: int, draw: random.Random) -> bad_files.Files:
    """Return committed runs as those of another machine: its own name, run ids, times and memory."""
    files = {}
    for place, content in bad_files.base(COMMITTED).items():
        study, point, file = place.split("/")
        run_id = f"{file[:16]}-{number:04x}{int(file[17:21], 16):04x}"
        text = content.decode().replace(file.rpartition(".")[0], run_id).replace(COMMITTED.name, f"m{number:03}")
        if file.endswith(".csv"):
            rows = list(csv.DictReader(io.StringIO(text)))
            for row in rows:
                factor = draw.uniform(0.98, 1.02)
                for name, power in (("seconds", 1), ("samples_per_second", -1)):
                    row[name] = row[name] and repr(float(row[name]) * factor**power)
                row["peak_memory_bytes"] = row["peak_memory_bytes"] and int(row["peak_memory_bytes"]) + draw.randrange(
                    9**6
                )
            text = as_csv(rows).decode()
        files[f"{study}/{point}/{run_id}.{file.rpartition('.')[2]}"] = text.encode()
    return files


def damaged(content: bytes, is_rows: bool, draw: random.Random) -> bytes:
    """Return a file with a cell, a value or some bytes of it changed."""
    kind = draw.random()
    if kind < 0.1:
        place = draw.randrange(len(content))
        return content[:place] + draw.choice([b"", bytes([draw.randrange(256)]) + content[place + 1 :]])
    if is_rows:
        rows = list(csv.DictReader(io.StringIO(content.decode())))
        for row in rows if kind < 0.4 else [draw.choice(rows)]:
            row[draw.choice(list(row)) if kind > 0.4 else records.COLUMNS[int(kind * 125)]] = draw.choice(ODD)
        return as_csv(rows)
    value = manifest = json.loads(content)
    while True:
        key = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if not isinstance(value[key], dict | list) or not value[key] or draw.random() < 0.2:
            value[key] = draw.choice(DEEP)
            return json.dumps(manifest).encode()
        value = value[key]


def test_what_is_accepted_a_report_draws_and_the_rest_is_named(tmp_path, monkeypatch):
    """A hundred machines, of each of which a file of two runs is damaged, side by side in one report."""
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    draw, runs, hurt = random.Random(34), tmp_path / "runs", []
    for number in range(100):
        files = a_machine(number, draw)
        trained = sorted(name for name in files if "calibrate" not in name)  # of each run, its rows and its manifest
        for place in (draw.choice(trained[:2]), draw.choice(trained[2:])):
            files[place] = damaged(files[place], place.endswith(".csv"), draw)
            hurt.append((f"m{number:03}", Path(place).stem))
        for name, content in files.items():
            (runs / f"m{number:03}" / name).parent.mkdir(parents=True, exist_ok=True)
            (runs / f"m{number:03}" / name).write_bytes(content)
    said = []
    measured, _, made = golden.drawn(runs, said.append)
    kept = set(zip(measured["machine"].str.partition(" ")[0], measured["run_id"], strict=True))
    refused = [run for run in hurt if run not in kept]
    assert all(any(run_id in line for line in said) for _, run_id in refused)
    assert 40 < len(refused) < 120
    assert len(made["headlines"]) > 50


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}
