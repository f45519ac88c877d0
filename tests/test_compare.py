"""Two sets of rows, named, paired and compared; and the command that does it."""

import json

import numpy
import pandas
import pytest

from benchbook.judging import compare
from benchbook.judging.intervals import Interval
from benchbook.rows import points
from rows import make_row, make_rows, write
from rows import windows as kernel_windows


def windows(rate=1000.0, seed=0, num_kernels=3, **columns):
    """Return six windows of each kernel around a rate, with 1 % of noise between kernels and in them."""
    random, lines = numpy.random.default_rng(seed), []
    name = "-".join(["run", *(str(columns.get(key, "")) for key in ("machine", "session", "point"))])
    for kernel in range(num_kernels):
        level = rate * (1 + 0.01 * random.normal())
        rates = level * (1 + 0.01 * random.normal(size=6))
        lines += kernel_windows(rates, **{"run_id": f"{name}-{kernel}"} | columns)
    return lines


ROWS = [
    *windows(session="s1", commit="aaaa11112222", framework_version="2.10.0+cpu"),
    *windows(session="s2", commit="aaaa33334444", framework_version="2.11.0"),
    *windows(session="s3", machine="attic", commit="bbbb55556666", framework_version="2.10.0"),
]


@pytest.mark.parametrize(
    ("name", "sessions"),
    [
        ("machine:desk", {"s2"}),  # the last of its sessions
        ("machine:attic", {"s3"}),
        ("session:s1", {"s1"}),
        ("commit:aaaa1", {"s1"}),
        ("commit:bbbb55556666", {"s3"}),
        ("library:torch==2.11.0", {"s2"}),
        ("library:torch==2.10.0", {"s1", "s3"}),  # any build of it
        ("library:numpy==1.26.4", {"s3"}),  # of a manifest
        ("commit:cccc9", {"s3"}),  # of a user's own file, or its digest
        ("commit:dddd", {"s3"}),
    ],
)
def test_a_side_is_a_machine_a_session_a_commit_or_a_library(tmp_path, name, sessions):
    rows = make_rows([row | {"run_id": f"20260101T000000Z-{row['session']}"} for row in ROWS[::18]])
    manifest = {"environment": {"packages": {"numpy": "1.26.4"}}}
    manifest["own_files"] = {"network": {"commit": "cccc99990000+changed", "sha256": "dddd8888"}}
    (tmp_path / "20260101T000000Z-s3.json").write_text(json.dumps(manifest))
    assert set(compare.resolve(name, rows, tmp_path)["session"]) == sessions


def test_a_folder_or_a_file_is_its_rows(outputs):
    folder = write(*windows(session="sent", machine="far"))
    assert set(compare.resolve(f"file:{folder}", make_rows([]), folder)["machine"]) == {"far"}
    assert len(compare.resolve(f"file:{next(folder.rglob('*.csv'))}", make_rows([]), folder)) == 6


@pytest.mark.parametrize(
    "side",
    ["desk", "machine:", "machine:dsk", "network:aaaa", "commit:aaa", "commit:ffff", "library:torch", "file:none"],
)
def test_what_is_no_side_is_an_error_that_says_what_is_allowed_and_what_exists(tmp_path, side):
    allowed = "machine:NAME, session:NAME, commit:NAME.*; there are machine:attic, machine:desk, session:s1"
    with pytest.raises(ValueError, match=f"no rows for '{side}'; allowed: {allowed}"):
        compare.resolve(side, make_rows(ROWS), tmp_path)
    with pytest.raises(ValueError, match="there are none yet"):
        compare.resolve(side, make_rows([]), tmp_path)
    with pytest.raises(ValueError, match="may be any of aaaa11112222, aaaa33334444; give more characters"):
        compare.resolve("commit:aaaa", make_rows(ROWS), tmp_path)


def pair(a, b):
    return compare.table(make_rows(a), make_rows(b)).iloc[0]


def test_the_faster_side_is_named_with_its_interval():
    line = pair(windows(session="s1"), windows(1300, seed=1, session="s2"))
    assert line["verdict"] == "B faster"
    assert 1.1 < line["low"] < line["ratio"] < line["high"] < 1.55
    assert line["note"] == "one session each: differences under 14% are undecided"
    assert (line["interval"], line["stability_a"].kind, line["stability_b"].kind) == ("interval", "stable", "stable")
    assert line["ratio"] == pytest.approx(line["b"] / line["a"])


def test_sessions_are_known_to_differ_where_points_were_repeated():
    a, b = windows(session="s1", commit="a"), windows(1100, seed=1, session="s2", commit="b")
    alone = compare.table(make_rows(a), make_rows(b)).iloc[0]
    again = [row for n in range(3, 8) for row in windows(seed=n, session=f"s{n}", commit="a")]
    line = compare.table(make_rows(a), make_rows(b), rows=make_rows([*a, *b, *again])).iloc[0]
    assert (alone["verdict"], line["verdict"], line["note"]) == ("no difference shown", "B faster", "")
    twice = compare.table(make_rows(a), make_rows(b), rows=make_rows([*a, *b])).iloc[0]
    assert (twice["low"], twice["high"]) == (alone["low"], alone["high"])
    same = compare.table(make_rows(a), make_rows([row | {"session": "s1"} for row in b])).iloc[0]
    assert same["note"] == ""
    assert same["high"] / same["low"] < alone["high"] / alone["low"]


def test_machines_of_different_devices_are_paired_by_what_the_point_is():
    a = [*windows(device="mps", point=named("mps")), *windows(100, point=named("cpu"))]
    b = windows(5000, machine="attic", device="cuda", point=named("cuda"))
    lines = compare.table(make_rows(a), make_rows(b))
    assert lines[["point", "device_a", "device_b"]].to_numpy().tolist() == [[named("mps"), "mps", "cuda"]]


def named(device, **parameters):
    return points.point_name("mnist_speedup", points.declared("mnist_speedup") | {"device": device} | parameters)


def test_what_a_machine_chose_or_wrote_beside_the_parameters_does_not_part_two_points():
    a = windows(point=named("cpu", variant="tuned"), variant="tuned", settings='{"fused": true}', num_workers=2)
    b = windows(2000, machine="attic", point=named("cpu", variant="tuned"), variant="tuned", precision="bf16")
    assert len(compare.table(make_rows(a), make_rows(b))) == 1


def test_a_point_without_a_partner_is_named():
    a = [*windows(point=named("cpu", batch_size=16)), *windows(100, point=named("cpu"))]
    b = [*windows(point=named("cpu", batch_size=8)), *windows(point=named("cpu"))]
    b = [row | {"machine": "attic"} for row in b]
    alone = {"a": [named("cpu", batch_size=16)], "b": [named("cpu", batch_size=8)]}
    assert compare.unpaired(make_rows(a), make_rows(b)) == alone
    assert compare.table(make_rows(a), make_rows(b))["point"].tolist() == [named("cpu")]
    assert compare.unpaired(make_rows(a), make_rows(a)) == {"a": [], "b": []}


def test_how_much_was_measured_does_not_part_machines_and_the_longer_of_two_points_counts():
    a = [*windows(100, point=named("cpu"), num_kernels=1), *windows(point=named("cpu", num_windows=6))]
    b = windows(machine="attic", point=named("cpu", num_windows=2, allow_embedded=False))
    lines = compare.table(make_rows(a), make_rows(b))
    assert lines["point"].tolist() == [named("cpu", num_windows=6)]
    assert lines["a"].item() == pytest.approx(1000, rel=0.02)
    assert compare.unpaired(make_rows(a), make_rows(b)) == {"a": [], "b": []}


def test_other_work_is_not_compared():
    others = {"dataset": {"dataset": "digits"}, "weights": {"settings": '{"weights": "random"}'}}
    others |= {"is_cpu": {"device": "cuda"}, "framework": {"framework": "jax"}, "batch_size": {"batch_size": 32}}
    others |= {"work": {"point": named("cpu", batch_size=32)}, "same_precision": {"precision": "tf32"}}
    for name, changed in others.items():
        with pytest.raises(ValueError, match=rf"^no point of A .*the nearest differ in .*{name} \("):
            pair(windows(point=named("cpu")), windows(**{"machine": "attic", "point": named("cpu")} | changed))
    with pytest.raises(ValueError, match="no point of A"):
        pair(windows(session="s1"), windows(session="s2", dataset="digits"))


def test_a_side_without_windows_is_named():
    failed = [make_row(machine="attic", session="s2", status="crashed", message="gone", samples_per_second=None)]
    with pytest.raises(ValueError, match="no windows were measured in B; nothing to compare"):
        pair(windows(), failed)
    with pytest.raises(ValueError, match="no windows were measured in A and B; nothing to compare"):
        pair(failed, failed)


def test_a_machine_is_compared_with_itself_or_with_one_other():
    both = [*windows(session="s1"), *windows(500, session="s3", machine="attic")]
    lines = compare.table(make_rows(both), make_rows(windows(session="s2", seed=1)))
    assert lines[["machine_a", "machine_b"]].to_numpy().tolist() == [["desk", "desk"]]
    with pytest.raises(ValueError, match="A has rows of attic, desk, which the other side lacks; name one machine"):
        pair(both, windows(machine="cellar"))


def test_what_has_no_interval_is_said_to_be_undecided_where_a_slower_point_should_fail(outputs, command):
    write(*windows(700, seed=1, session="s2")[:2], *windows(session="s1"))
    status, said = command("compare", "session:s1", "session:s2", "--fail-if-slower", "10")
    assert status == 4
    assert "Undecided, because the interval contains 0.9 or is missing: reference-cpu" in said


@pytest.mark.parametrize(
    ("low", "high", "kind", "percent", "expected", "outcome"),
    [
        (0.80, 0.89, "interval", 10, compare.SLOWER, "A faster"),
        (0.80, 0.91, "interval", 10, compare.UNDECIDED, "A faster"),
        (0.91, 1.20, "interval", 10, compare.NOT_SLOWER, "no difference shown"),
        (0.91, 0.99, "interval", 0, compare.SLOWER, "A faster"),
        (0.40, 0.50, "range", 10, compare.UNDECIDED, compare.TOO_FEW),
    ],
)
def test_slower_and_not_slower_are_decided_by_the_whole_interval(low, high, kind, percent, expected, outcome):
    ratio = Interval((low + high) / 2, low, high, kind)
    assert (compare.decide(ratio, percent), compare.outcome(ratio)) == (expected, outcome)
    with pytest.raises(ValueError, match=r"percent -1; allowed: 0 to less than 100"):
        compare.decide(ratio, -1)


def test_the_command_prints_writes_and_fails_if_slower(outputs, command):
    write(*windows(session="s1"), *windows(700, seed=1, session="s2"))
    sides = ("compare", "session:s1", "session:s2")
    status, said = command(*sides, "--csv", outputs / "compared.csv")
    assert status == 0, said
    assert "A faster" in said
    written = pandas.read_csv(outputs / "compared.csv")
    assert set(written) == {*compare.COLUMNS, "stability_a_reasons", "stability_b_reasons"}
    assert written[["stability_a", "stability_a_reasons"]].to_numpy().tolist() == [["stable", "[]"]]
    assert written["verdict"].tolist() == ["A faster"]
    assert "Not compared" not in said
    status, said = command(*sides, "--fail-if-slower", "10")
    assert status == 1
    assert "session:s2 is more than 10 % slower than session:s1 in: reference-cpu" in said
    assert "Undecided" not in said
    assert command(*sides, "--fail-if-slower", "50")[0] == 0
    assert command("compare", "session:s2", "session:s1", "--fail-if-slower", "10")[0] == 0
    write(*windows(session="s2", point="tuned-cpu-12345678"))
    assert "no such point: tuned, CPU of session:s2" in command(*sides)[1]
