"""Packs: what goes into one, what comes back, and what is refused before anything is written."""

import itertools
import json
import os
import shutil
import stat
import tracemalloc
import unicodedata
import zipfile
from pathlib import Path

import pytest

from benchbook.machine import identity, layout, sessions
from benchbook.rows import manifests, packing, records, staging
from benchbook.studies.checks import CHECKS
from made.processes import ended_after
from made.rows import contents, make_row, make_zip, write

CSV = "desk/mnist_speedup/reference-cpu/run-1.csv"
MANIFEST = CSV.replace(".csv", ".json")


@pytest.fixture(autouse=True)
def outputs(tmp_path, monkeypatch):
    """Point the project at an empty outputs folder."""
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "outputs"))
    return tmp_path / "outputs"


def measure(**columns):
    """Write a finished run of the machine `desk`: two rows, a manifest, and the other files that
    a run leaves."""
    row = make_row(**columns)
    runs = write(row | {"index": 0}, row | {"index": 1})
    folder = runs / row["machine"] / row["study"] / row["point"]
    (folder / f"{row['run_id']}.json").write_text(json.dumps({"commit": "abc"}))
    for leftover in (f"{row['run_id']}.ipynb", f"{row['run_id']}.log", "done"):
        (folder / leftover).write_text("not to be sent")
    return folder


def test_a_newer_pack_adds_its_new_runs_to_an_older(tmp_path, monkeypatch):
    measure()
    older, _ = CHECKS.pack("desk", tmp_path / "older.zip")
    measure(run_id="run-2", seconds=4.0, samples_per_second=160.0)
    newer, _ = CHECKS.pack("desk", tmp_path / "newer.zip")
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "elsewhere"))
    for path in (older, newer, older):
        CHECKS.add(path)
    assert len(records.merge(layout.runs("desk"))) == 4


def test_no_rows_an_unfinished_run_a_wrong_place_and_a_private_path_are_not_packed(outputs):
    measure(machine="attic")
    with pytest.raises(
        packing.PackError, match=r"'desk' has no rows; machines with a folder: attic"
    ):
        CHECKS.pack("desk")
    folder = measure()
    (folder / "run-2.running").write_text("{}")
    with pytest.raises(packing.PackError, match="run-2 of desk has not ended"):
        CHECKS.pack("desk")
    (folder / "run-2.running").unlink()
    other = folder.rename(folder.with_name("tuned-cpu"))
    with pytest.raises(
        packing.PackError,
        match=r"desk/mnist_speedup/reference-cpu/run-1\.csv has no rows of this run",
    ):
        CHECKS.pack("desk")
    other.rename(folder)
    assert not list(outputs.glob("*.zip*"))


HOMES = [
    str(layout.root()),
    "/Users/me",
    "/home/josé",
    "/home/张伟",
    "/home/\U00020bb7",
    "/Users/jose\u0301",
]


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("written", ["{}/data", "in {}", "josé: {}: no file"])
def test_the_home_folder_is_not_packed_however_it_is_written(monkeypatch, home, written):
    monkeypatch.setattr(Path, "home", lambda: Path(unicodedata.normalize("NFC", home)))
    path = measure() / "run-1.json"
    CHECKS.pack("desk")
    inner = json.dumps(written.format(home))
    for text in (inner, json.dumps(inner), json.dumps(written.format(home), ensure_ascii=False)):
        path.write_text(f'{{"path": {text}}}')
        with pytest.raises(packing.PackError, match=r"run-1\.json names the folder"):
            CHECKS.pack("desk")
    for other in (f"{home}er/x", f"x{home}", "josé 张伟"):
        path.write_text(json.dumps({"path": other}))
        CHECKS.pack("desk")


@pytest.mark.parametrize("kept", ["rows", "manifest"])
def test_a_link_is_read_as_its_targets_name(tmp_path, kept):
    members = {CSV: "/etc/passwd"} if kept == "rows" else {CSV: {}, MANIFEST: "/etc/passwd"}
    path = make_zip(tmp_path / "other.zip", members, stat.S_IFLNK | 0o777)
    with pytest.raises(ValueError, match=r"a header without rows|is not JSON"):
        CHECKS.add(path)


def test_what_is_encrypted_or_too_large_is_refused(tmp_path, monkeypatch):
    path = make_zip(tmp_path / "other.zip", {CSV: "x"})
    content = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + flags] |= 1
    path.write_bytes(content)
    with pytest.raises(packing.PackError, match=r"not a readable zip \(.*is encrypted"):
        CHECKS.add(path)
    monkeypatch.setattr(packing, "MAX_FILES", 1)
    with pytest.raises(packing.PackError, match="2 files; allowed: 1"):
        CHECKS.add(make_zip(path, {CSV: {}, MANIFEST: "{}"}))
    monkeypatch.setattr(packing, "MAX_BYTES", 1000)
    with pytest.raises(packing.PackError, match="1001 bytes unpacked; allowed: 1000"):
        CHECKS.add(make_zip(path, {CSV: "x" * 1001}, method=zipfile.ZIP_DEFLATED))
    with pytest.raises(packing.PackError, match=r"not a readable zip \(.*bytes; allowed: 1000"):
        CHECKS.add(make_zip(path, {CSV: "x" * 1001}))


FORMS = [
    "zip -r",
    "Finder",
    "in a folder",
    "unpacked",
    "unpacked into a folder",
    "unpacked by Finder into a folder",
]


@pytest.mark.parametrize("form", FORMS)
def test_what_finder_and_zip_make_of_a_pack_is_added_without_their_own_files(
    tmp_path, monkeypatch, form
):
    measure()
    sent, _ = CHECKS.pack("desk", tmp_path / "desk.zip")
    whole = contents(layout.outputs() / "runs")
    own = {name: text for name, text in whole.items() if name.endswith((".csv", ".json"))}
    others = dict.fromkeys(
        [".DS_Store", "desk/.DS_Store", "__MACOSX/desk/._mnist_speedup"], b"\x00\x05\x16\x07"
    )
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "elsewhere"))
    if form.startswith("unpacked"):
        place = tmp_path / "unpacked"
        with zipfile.ZipFile(sent) as archive:
            archive.extractall(place)
        (place / "desk" / ".DS_Store").write_bytes(b"x")
        (place / "desk" / "mnist_speedup" / "._reference-cpu").write_bytes(b"x")
        if "Finder" in form:
            beside = place / "__MACOSX" / "desk" / "mnist_speedup" / "reference-cpu" / "._run-1.csv"
            beside.parent.mkdir(parents=True)
            beside.write_bytes(b"x")
        sent = place if form.endswith("folder") else place / "desk"
    else:
        folders = {f"{name}/": b"" for name, text in whole.items() if text is None}
        members = folders | own | (others if form != "zip -r" else {})
        around = "my rows (1)/" * (form == "in a folder")
        sent = make_zip(
            tmp_path / "theirs.zip", {f"{around}{name}": text for name, text in members.items()}
        )
    CHECKS.add(sent)
    added = contents(tmp_path / "elsewhere" / "runs")
    assert {name: text for name, text in added.items() if text is not None} == own


def test_an_add_that_is_killed_anywhere_is_whole_or_nothing_after_the_next_start(tmp_path, outputs):
    measure()
    measure(run_id="run-2", seconds=4.0, samples_per_second=160.0)
    sent, _ = CHECKS.pack("desk", tmp_path / "desk.zip")
    names, found = set(packing.read(sent)), set()
    shutil.rmtree(outputs)
    for count in itertools.count(0, 7):
        if (status := ended_after(count, lambda: CHECKS.add(sent, str))) == 0:
            break
        assert status == 9
        staging.tidy()
        there = {name for name, text in contents(outputs).items() if text is not None}
        assert there in (set(), {f"runs/{name}" for name in names}), count
        found.add(len(there))
        shutil.rmtree(outputs, ignore_errors=True)
    assert found == {0, len(names)}
    assert not list(outputs.glob(".*"))


@pytest.mark.parametrize("kind", ["pipe", "link", "large"])
@pytest.mark.parametrize("ending", [".zip", ".json", ".csv"])
def test_what_is_no_plain_file_is_refused_and_blocks_nothing(
    tmp_path, outputs, command, kind, ending
):
    folder = measure()
    for leftover in ("run-1.ipynb", "run-1.log", "done"):
        (folder / leftover).unlink()
    theirs = (outputs / "runs" / "desk").rename(tmp_path / "desk")
    shutil.rmtree(outputs)
    path = (
        theirs.with_suffix(".zip")
        if ending == ".zip"
        else theirs / "mnist_speedup" / "reference-cpu" / f"run-1{ending}"
    )
    path.unlink(missing_ok=True)
    if kind == "large":
        path.touch()
        os.truncate(path, 2**29)
    else:
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    status, said = command("add", path if ending == ".zip" else theirs)
    assert (status, said.count("\n"), said[:7]) == (2, 1, "error: ")
    assert "bytes; allowed: " in said if kind == "large" else "it is no plain file" in said
    assert not any(outputs.rglob("*"))


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_a_damaged_zip_is_added_whole_or_refused_whole(tmp_path, outputs, step):
    measure()
    path, added = CHECKS.pack("desk", tmp_path / "desk.zip")[0], 0
    content = path.read_bytes()
    shutil.rmtree(outputs)
    for place in range(0, len(content), step):
        cut, rest = content[:place], content[place + 1 :]
        for damaged in (cut, cut + bytes([content[place] ^ 0xFF]) + rest, cut + rest):
            path.write_bytes(damaged)
            try:
                CHECKS.add(path, str)
            except (
                packing.PackError,
                records.SchemaError,
                manifests.ManifestError,
            ):  # any other error fails this test
                assert not any(outputs.rglob("*"))
                continue
            files = {
                name: text for name, text in contents(outputs / "runs").items() if text is not None
            }
            with zipfile.ZipFile(path) as archive:
                assert files == {name: archive.read(name) for name in archive.namelist()}
            shutil.rmtree(outputs)
            added += 1
    assert added


def test_a_bomb_that_declares_little_takes_little(tmp_path, outputs):
    path = make_zip(tmp_path / "other.zip", {CSV: b"0" * 64 * 2**20}, method=zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    for signature, place in (
        (b"PK\x03\x04", 22),
        (b"PK\x01\x02", 24),
    ):  # uncompressed sizes of both headers
        start = content.index(signature) + place
        content[start : start + 4] = (1000).to_bytes(4, "little")
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(packing.PackError, match="not a readable zip"):
        CHECKS.add(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * 2**20
    assert not any(outputs.rglob("*"))


def test_a_bad_archive_is_named_and_the_others_are_added(tmp_path, outputs, command):
    def send(name, number, kind, **columns):
        run = f"20260101T000000Z-{number}"
        place = CSV.replace("run-1", run)
        manifest = json.dumps({"machine": {"name": "desk", "fingerprint": kind}})
        return make_zip(
            tmp_path / name,
            {place: {"run_id": run} | columns, place.replace(".csv", ".json"): manifest},
        )

    sent = [
        send("1-desk.zip", 1, "aaaa11112222"),
        send("2-wrong.zip", 2, "aaaa11112222", source="published"),
    ]
    (tmp_path / "3-torn.zip").write_bytes(sent[0].read_bytes()[:200])
    sent += [tmp_path / "3-torn.zip", send("4-other-desk.zip", 4, "bbbb33334444", chip="Chip B")]
    status, said = command("add", *sent)
    assert status == 2
    assert "error: 2-wrong.zip: desk/" in said
    assert (
        "Z-2.csv, line 2: source is published; allowed in measured rows: measured; 3-torn.zip: not a"
        in said
    )
    apart, _ = CHECKS.read(outputs / "runs", str)
    assert sorted(apart["machine"]) == ["desk", "desk-bbbb-8409"]
    assert "the rows of desk are kept as desk-bbbb-" in said
    before = contents(outputs)
    assert command("add", *sent)[0] == 2
    assert contents(outputs) == before


@pytest.mark.parametrize("own_first", [True, False])
@pytest.mark.parametrize("friend", ["bbbb", "own, of a friend"])
def test_anothers_rows_under_my_name_stay_apart_in_every_order(
    tmp_path, outputs, command, monkeypatch, friend, own_first
):
    mine = identity.fingerprint()
    theirs = mine if friend.startswith("own") else f"{friend}11112222"
    monkeypatch.setenv("BENCHBOOK_MACHINE", "desk")

    def study():
        sessions.remember("mine")
        measure(session="mine", run_id="20261128T000000Z-mine", machine=identity.identify().name)
        folder = layout.point(identity.identify().name, "mnist_speedup", "reference-cpu")
        about = {"name": identity.identify().name, "fingerprint": mine}
        manifest = folder / "20261128T000000Z-mine.json"
        manifest.write_text(json.dumps({"machine": about}))

    def receive(name, *days):
        members = {}
        for day in days:
            run, seconds = f"202611{day}T000000Z-ff", day / 10
            place = CSV.replace("run-1", run)
            members[place] = {"run_id": run, "session": f"s-{days[0]}", "seconds": seconds}
            members[place] |= {"samples_per_second": 640 / seconds}
            about = json.dumps({"machine": {"name": "desk", "fingerprint": theirs}})
            members[place.replace(".csv", ".json")] = about
        status, said = command("add", make_zip(tmp_path / name, members))
        assert status == 0, said

    first, second = (study, lambda: receive("a.zip", 20))[:: 1 if own_first else -1]
    first()
    name = identity.identify().name
    second()
    if own_first:
        assert identity.identify().name == name == "desk"  # plan and study go on under my name
    receive("b.zip", 20, 21)  # a newer pack of the same friend follows the older
    rows, _ = CHECKS.read(outputs / "runs", str)
    assert len(rows) == 4
    of_friend = rows[rows["run_id"].str.endswith("ff")]
    assert of_friend["machine"].nunique() == 1
    assert set(rows["machine"]) - set(of_friend["machine"]) == {identity.identify().name}
    path, packed = CHECKS.pack()
    assert set(packed["run_id"]) == {"20261128T000000Z-mine"}
    with zipfile.ZipFile(path) as archive:
        assert not [member for member in archive.namelist() if "ff" in member.rpartition("/")[2]]


def test_a_second_computer_of_my_own_gets_a_name_or_the_one_i_choose(tmp_path, outputs, command):
    measure()
    sent = make_zip(
        tmp_path / "second.zip",
        {
            CSV.replace("run-1", "run-2"): {
                "run_id": "run-2",
                "session": "s2",
                "seconds": 4.0,
                "samples_per_second": 160.0,
            }
        },
    )
    status, said = command("add", sent, "--as", "laptop")
    assert (status, sorted(path.name for path in (outputs / "runs").iterdir())) == (
        0,
        ["desk", "laptop"],
    )
    status, said = command("add", sent)
    assert status == 2
    assert "run run-2 is here already under machine laptop" in said
    assert command("add", sent, sent, "--as", "x")[0] == 2
    status, said = command("pack")
    assert (status, "no session of this checkout and computer" in said) == (2, True)
    status, said = command("pack", "--machine", "laptop")
    assert (status, "1 of 1 runs of laptop were not measured by this checkout here" in said) == (
        0,
        True,
    )
