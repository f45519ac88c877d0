"""Files that nobody made for us: whatever they hold, they are read or refused by one of our own errors."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchbook.frameworks.devices import DeviceUnavailable
from benchbook.machine import layout
from benchbook.rows import packing, records
from benchbook.running import profiles
from rows import make_row

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


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}
