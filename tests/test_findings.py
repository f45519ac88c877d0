"""Findings: at most two sentences with hedges, and the numbers behind them, every part of it from rows."""

import re

from benchbook import studies
from benchbook.report import headline
from benchbook.studies import findings
from benchbook.studies.study import Evidence, Study
from rows import make_row, make_rows, windows

STUDY = "mnist_speedup"
PRINTED = make_row(source="published", machine="printed-box", phase="total", device="mps", seconds=19.6, epoch=1)
PRINTED |= {"samples_per_second": None, "samples": 60_000, "run_id": "printed", "point": "printed"}


def point(rates=(100.0, 101.0, 99.0, 100.0, 102.0, 98.0), variant="reference", **columns):
    name = f"{variant}-{columns.get('machine')}-{columns.get('status')}-{columns.get('device')}"
    common = {"variant": variant, "point": name, "run_id": name, "session": name} | columns
    if common.get("status", "ok") != "ok":
        return [make_row(**common | dict.fromkeys(("samples", "seconds", "samples_per_second", "input_seconds")))]
    return windows(rates, **common)


def evidence_of(*parts, printed=(PRINTED,)):
    return Evidence(make_rows([*printed, *(row for part in parts for row in part)]))


def line(*parts, printed=(PRINTED,)):
    evidence, every = evidence_of(*parts, printed=printed), studies.every()
    return findings.table(evidence, [every[STUDY]], headline.table(evidence, every)).iloc[0]


def sentences(text):
    """Return the sentences of a text; points in numbers end none."""
    return re.findall(r"\S.*?[.?!](?= [A-Z]|$)", text)


def starts(num_kernels, *points):
    """Return points as so many kernels measured them."""
    return [row | {"run_id": f"{row['run_id']}-{place}"} for place in range(num_kernels) for row in point(*points)]


def test_a_finding_names_the_machine_the_way_and_what_it_stands_on():
    text = line(point(), point((200.0,) * 6, "tuned")).finding
    assert "(tuned) takes 5.0 min on a Chip A (one start only" in text
    assert text.count("not confirmed") == 1
    assert "desk" not in text


def test_several_starts_of_a_sound_point_need_no_hedge_and_have_an_interval():
    found = line(starts(5))
    assert found.finding == "One MNIST epoch (reference) takes 10 min on a Chip A."
    low, high = re.search(r"\(95 % interval ([\d.]+) to ([\d.]+), n=30, stable\)", found.basis).groups()
    assert 90 < float(low) < 100 < float(high) < 110
    assert "its speed varied" in line(starts(5, (50.0, 150.0, 60.0, 140.0, 55.0, 145.0))).finding


def test_of_several_machines_the_fastest_speaks_and_says_so():
    text = line(point((50.0,) * 6), point((300.0,) * 6, machine="attic", chip="Chip B")).finding
    assert "on a Chip B, the fastest of 2 machines" in text


def test_machines_that_did_other_work_are_not_compared():
    other = {"machine": "attic", "chip": "Chip B"}
    for change in ({"dataset": "digits-28px"}, {"framework": "mlx"}):
        assert "machines" not in line(point((50.0,) * 6), point((300.0,) * 6, **other | change)).finding
    assert "machines" not in line(point((50.0,) * 6), point((300.0,) * 6, "tuned", **other)).finding


def test_a_steady_point_speaks_before_a_faster_unstable_one():
    toy = Study("mnist_speedup", "MNIST", ())
    unstable = point((100.0, 400.0, 100.0, 400.0, 100.0, 400.0), machine="attic", chip="Chip B")
    assert " 100 images a second on a Chip A" in findings.finding(toy, evidence_of(point(), unstable))
    assert "Chip B" in findings.finding(toy, evidence_of(unstable))
    assert "nothing was measured" in findings.finding(toy, evidence_of())


def test_the_numbers_behind_have_bounds_windows_verdict_and_energy():
    energy = {"energy_joules": 64.0, "energy_method": "nvml", "energy_boundary": "board"}
    text = line(point(**energy), point((300.0, 310.0), "tuned")).basis
    assert "same precision everywhere: 100 sequences a second (" in line(point(sequence_length=64)).basis
    assert "same precision everywhere: 100 images a second (range 98 to 102, n=6, stable) on Chip A, CPU" in text
    assert "the best each device can do: 305 images a second (range 300 to 310, n=2, too few windows)" in text
    assert "; 0.10 J an image (board)." in text


def test_the_limits_are_counted():
    stand_in = point((80.0, 90.0, 100.0, 110.0, 120.0, 130.0), dataset="digits-28px")
    text = line(stand_in, point(status="out_of_memory")).basis
    assert "Data: 8 x 8 scans of digits in place of MNIST." in text
    assert "Unstable: 1 of 2 points. Failed (out of memory): 1 of 2 points." in text
    assert "Range instead of interval" in text


def test_where_nothing_was_measured_it_says_so():
    assert line().finding == "One MNIST epoch (reference) takes 20 s on a Chip A's GPU, published."
    assert line(printed=()).finding == "No MNIST epoch was measured here yet."
    assert line(printed=()).basis == ""
