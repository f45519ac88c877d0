"""Two machines or sessions, named, paired and compared; and the command that does it."""

import json
import math
import re

import numpy
import pandas
import pytest

from benchbook.judging import compare, intervals, verdicts
from benchbook.judging.verdicts import Verdict
from benchbook.studies.experiments.parameters import declared, point_name
from made.rows import make_rows, write
from made.rows import windows as make_windows
from made.runs import LATER, a_run, send


def windows(rate=1000.0, seed=0, num_processes=3, **columns):
    """Return six windows of each process around a rate, with 1 % of noise between processes and
    in them."""
    random, lines = numpy.random.default_rng(seed), []
    name = "-".join(
        ["run", *(str(columns.get(key, "")) for key in ("machine", "session", "point"))]
    )
    for process in range(num_processes):
        level = rate * (1 + 0.01 * random.normal())
        rates = level * (1 + 0.01 * random.normal(size=6))
        lines += make_windows(rates, **{"run_id": f"{name}-{process}"} | columns)
    return lines


WRONG = Verdict((("parity", "off"),))
ROWS = [
    *windows(session="s1"),
    *windows(session="s2"),
    *windows(session="s3", machine="attic"),
    *windows(session="both"),
    *windows(session="both", machine="attic"),
]


@pytest.mark.parametrize(
    ("name", "sessions"), [("desk", {"s2"}), ("attic", {"s3"}), ("s1", {"s1"}), ("s3", {"s3"})]
)
def test_a_side_is_a_machines_last_session_or_a_named_session(name, sessions):
    assert set(compare.rows_of(name, make_rows(ROWS[:-36]))["session"]) == sessions


def test_an_unknown_side_is_an_error_that_names_machines_and_sessions():
    allowed = r"allowed: a machine \(attic, desk\) or a session \(the last: both, s1, s2, s3\)"
    for name in ("dsk", "", "machine:desk"):
        with pytest.raises(ValueError, match=f"'{name}' has no rows; {allowed}"):
            compare.rows_of(name, make_rows(ROWS))
    with pytest.raises(ValueError, match=f"'both' names several machines; {allowed}"):
        compare.rows_of("both", make_rows(ROWS))
    with pytest.raises(ValueError, match=r"a machine \(none yet\)"):
        compare.rows_of("desk", make_rows([]))


def pair(a, b):
    return compare.table(make_rows(a), make_rows(b))[0].iloc[0]


def test_two_numbers_are_compared_with_what_sessions_differ_in_one_session_too():
    a, b = windows(session="s1", commit="a"), windows(1100, seed=1, session="s2", commit="b")
    across, same = pair(a, b), pair(a, [row | {"session": "s1"} for row in b])
    assert (across["one_session"], same["one_session"]) == (False, True)
    assert across["verdict"] == same["verdict"] == "no difference shown"
    assert same["high"] == pytest.approx(across["high"])
    assert same["high"] > 1.1 * math.exp(2**0.5 * 1.96 * 0.04)


def line(random, level, session):
    """Return a summary's line of three processes that are 5 % apart."""
    rates = level * numpy.exp(0.05 * random.normal(size=3))
    rate = intervals.interval(rates, range(3)).columns("samples_per_second")
    sessions = intervals.UNPAIRED.session
    named = {"machine": "desk", "session": session, "between_sessions": sessions}
    return rate | named | {"num_processes": 3}


@pytest.mark.parametrize(
    ("num_points", "changed", "between", "least", "most"),
    [
        (8, 1.0, 0.04, 0, 0.05),
        (8, 1.0, 0.15, 0, 0.08),  # on a host with many guests
        (8, 1.3, 0.04, 0.8, 1),
        (1, 1.3, 0.04, 0.8, 1),
    ],
)
def test_two_sessions_of_a_machine_are_unlike_by_more_than_their_other_points_are(
    num_points, changed, between, least, most
):
    random, unlike = numpy.random.default_rng(3), []
    for _ in range(300):
        levels = numpy.exp(between * random.normal(size=(num_points, 2)))
        levels[0, 1] *= changed
        pairs = [
            [line(random, *of) for of in zip(pair, "ab", strict=True)] for pair in levels.tolist()
        ]
        first, *_ = compare.ratios(pairs)
        unlike.append(not first.low <= 1 <= first.high)
    assert least <= numpy.mean(unlike) <= most


def test_sizes_read_with_and_without_missing_ones_beside_them_pair():
    """pandas reads 64 as 64.0 where another line has none."""
    lines = [
        *windows(session="a", batch_size=64),
        *windows(session="a", point="q", batch_size=None),
    ]
    assert (
        len(compare.table(make_rows(lines), make_rows(windows(session="b", batch_size=64)))[0]) == 1
    )


def test_machines_of_different_devices_are_paired_by_what_the_point_is_and_one_without_a_partner_is_named():
    a = [*windows(device="mps", point=named("mps")), *windows(100, point=named("cpu"))]
    b = [
        row | {"machine": "attic"}
        for size in (64, 8)
        for row in windows(point=named("cuda", batch_size=size))
    ]
    lines, alone = compare.table(make_rows(a), make_rows([row | {"device": "cuda"} for row in b]))
    assert lines["point"].tolist() == [named("mps")]
    assert alone == {"a": [named("cpu")], "b": [named("cuda", batch_size=8)]}


def named(device, **parameters):
    return point_name("mnist_speedup", declared("mnist_speedup") | {"device": device} | parameters)


def test_what_a_machine_chose_or_wrote_beside_the_parameters_does_not_part_two_points():
    a = windows(
        point=named("cpu", variant="tuned"),
        variant="tuned",
        settings='{"fused": true}',
        num_workers=2,
    )
    b = windows(
        2000,
        machine="attic",
        point=named("cpu", variant="tuned"),
        variant="tuned",
        precision="bf16",
    )
    assert len(compare.table(make_rows(a), make_rows(b))[0]) == 1


def test_how_much_was_measured_does_not_part_machines_and_the_longer_of_two_points_counts():
    a = [
        *windows(100, point=named("cpu"), num_processes=1),
        *windows(point=named("cpu", num_windows=6)),
    ]
    b = windows(machine="attic", point=named("cpu", num_windows=2, allow_embedded=False))
    lines, alone = compare.table(make_rows(a), make_rows(b))
    assert (lines["point"].tolist(), alone) == ([named("cpu", num_windows=6)], {"a": [], "b": []})
    assert lines["a"].item() == pytest.approx(1000, rel=0.02)


@pytest.mark.parametrize(
    "changed",
    [
        {"dataset": "digits"},
        {"settings": '{"weights": "random"}'},
        {"device": "cuda"},
        {"framework": "jax"},
        {"batch_size": 32},
        {"point": named("cpu", batch_size=32)},
        {"precision": "tf32"},
    ],
)
def test_other_work_is_not_compared(changed):
    with pytest.raises(
        ValueError,
        match=r"^none of 1 measured points of A is like one of 1 of B; allowed: .* work, ",
    ):
        pair(
            windows(point=named("cpu")),
            windows(**{"machine": "attic", "point": named("cpu")} | changed),
        )


def test_the_command_compares_sessions_and_machines(outputs, command):
    write(*windows(session="s1"), *windows(700, seed=1, session="s2"))
    write(*windows(2000, seed=2, session="s3", machine="attic"))
    status, said = command("compare", "s1", "s2")
    assert status == 0, said
    assert "A faster" in said
    assert "Not compared" not in said
    assert "B faster" in command("compare", "desk", "attic")[1]
    told = json.loads(command("compare", "desk", "attic", "--json")[1].splitlines()[0])
    (point,) = told["points"]
    assert (told["sides"], point["verdict"]) == (["desk", "attic"], "B faster")
    assert point["low"] < point["ratio"] == pytest.approx(point["b"] / point["a"])
    write(*windows(seed=3, session="s2", point="tuned-cpu-12345678"))
    assert "no such point: tuned-cpu-12345678 of s2" in command("compare", "s1", "s2")[1]


def test_a_geometric_mean_is_of_the_points_that_all_sides_have_and_trained_right():
    def ratios(*values, wrong=""):
        columns = ("ratio", "low", "high", "interval", "study", "point")
        lines = [(each, each / 2, each * 2, "interval", "s", place) for place, each in values]
        table = pandas.DataFrame(lines, columns=columns)
        verdict = table["point"].map(lambda place: WRONG if place in wrong else None)
        return table.assign(stability_a=None, stability_b=verdict)

    one = ratios(("a", 2.0), ("b", 8.0), ("c", 100.0), ("d", 100.0))
    count, [first, other] = compare.means(
        [one, ratios(("b", 0.5), ("a", 0.5), ("c", 9.0), wrong="c")]
    )
    assert (count, first.value, first.low, first.high) == pytest.approx((2, 4.0, 2.0, 8.0))
    assert other.value == pytest.approx(0.5)
    assert compare.faster(first, ("A", "C")) == "C faster"
    one.loc[0, "interval"] = "range"
    assert compare.faster(compare.means([one])[1][0], ("A", "B")) == verdicts.TOO_FEW


def test_the_command_compares_several_machines_with_the_first(outputs, command):
    for seed, (machine, factor) in enumerate({"desk": 1, "attic": 2, "shed": 0.25}.items()):
        own = {"machine": machine, "session": f"s{seed}", "seed": seed}
        small = {"point": "reference-cpu-8", "batch_size": 8}
        write(*windows(1000 * factor, **own), *windows(50 * factor, **small, **own))
    small |= {"point": "reference-cpu-16", "batch_size": 16}  # of two sides
    write(
        *windows(seed=5, session="s0", **small),
        *windows(seed=6, session="s1", machine="attic", **small),
    )
    small |= {"point": "reference-cpu-4", "batch_size": 4}
    write(*windows(seed=4, session="s2", machine="shed", **small))
    status, said = command("compare", "desk", "attic", "shed")
    assert status == 0, said
    assert re.search(r"Geometric mean of 2 points: B / A (1.9|2).* to .*, B faster", said)
    assert re.search(r"Geometric mean of 2 points: C / A 0.2.* to .*, A faster", said)
    assert "no such point: reference-cpu-4 of shed" in said
    assert re.search(r"reference-cpu-16 +│ .* │ .*no difference shown │ +│ +\n", said)
    told = json.loads(command("compare", "desk", "attic", "shed", "--json")[1].splitlines()[0])
    points = pandas.DataFrame(told["points"])
    assert points["name"].value_counts().to_dict() == {"attic": 3, "shed": 2}
    ratios = points[points["point"].ne("reference-cpu-16")].groupby("name")["ratio"]
    for mean in told["means"]:
        own = math.exp(numpy.log(ratios.get_group(mean["name"])).mean())
        assert mean["ratio"] == pytest.approx(own)
    assert told["alone"] == {"desk": [], "attic": [], "shed": ["reference-cpu-4"]}


def test_the_command_leaves_out_what_contradicts_itself(outputs, command):
    write(*windows(session="s1"), *windows(seed=1, session="s2", num_processes=4))
    [*_, last] = sorted((outputs / "runs").rglob("*s2*.csv"))
    table = pandas.read_csv(last)
    table["samples_per_second"] *= 10
    table.to_csv(last, index=False)
    status, said = command("compare", "s1", "s2")
    assert status == 0, said
    assert f"{last.name}, line 2: " in said
    assert "no difference shown" in said


def test_two_kinds_of_computer_with_one_name_are_two_machines(outputs, command):
    send(
        [
            a_run(known={"fingerprint": "aaaa11112222"}),
            a_run(start=LATER, known={"fingerprint": "bbbb33334444"}),
        ]
    )
    assert command("compare", "desk (aaaa)", "desk (bbbb)")[0] == 0
    status, said = command("compare", "desk", "session-1")
    assert (
        status,
        "'desk' has no rows; allowed: a machine (desk (aaaa), desk (bbbb))" in said,
    ) == (2, True)
