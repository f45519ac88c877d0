"""A paragraph for each study, every part of it from rows."""

import re

import pytest

from benchbook import findings, headline, layout, studies
from benchbook.study import Evidence
from rows import make_row, make_rows

STUDY = "mnist_speedup"
PRINTED = make_row(source="published", machine="printed-box", phase="total", device="mps", seconds=19.6, epoch=1)
PRINTED |= {"samples_per_second": None, "samples": 60_000, "run_id": "printed", "point": "printed"}


def point(rates=(100.0, 101.0, 99.0, 100.0, 102.0, 98.0), variant="reference", **columns):
    name = f"{variant}-{columns.get('machine')}-{columns.get('status')}"
    common = {"variant": variant, "point": name, "run_id": name, "session": name} | columns
    if common.get("status", "ok") != "ok":
        return [make_row(**common | dict.fromkeys(("samples", "seconds", "samples_per_second", "input_seconds")))]
    return [make_row(**common, index=index, samples_per_second=rate) for index, rate in enumerate(rates)]


def finding(*parts, printed=(PRINTED,), sentences=("What follows",)):
    rows = make_rows([*printed, *(row for part in parts for row in part)])
    evidence, every = Evidence(rows), studies.every()
    headlines = headline.table(evidence, every)
    return findings.table(evidence, [every[STUDY]], headlines, {STUDY: list(sentences)})["finding"].item()


def test_a_paragraph_asks_tells_what_is_published_measured_and_follows():
    text = finding(point())
    assert text.startswith(f"{layout.question(STUDY)} Published: 19.6 (printed-box, mps) s an epoch. Measured, ")
    assert "a median of 100 images a second (range 98 to 102, n=6, stable)" in text
    assert "on desk, cpu, reference, mnist; no sensor read its energy." in text
    assert " What follows. 1 of 1 points have a range and no interval" in text


def test_five_kernels_have_an_interval():
    kernels = [row | {"run_id": f"run-{place}"} for place in range(5) for row in point()]
    low, high = re.search(r"\(95 % interval ([\d.]+) to ([\d.]+), n=30, stable\)", finding(kernels)).groups()
    assert 90 < float(low) < 98 < 102 < float(high) < 110


def test_both_views_have_a_sentence_of_their_own():
    text = finding(point(), point((300.0, 310.0), "tuned"), point((50.0,), machine="attic"))
    assert "same precision everywhere: a median of 100 images" in text
    assert "the fastest of 2 on 2 machines" in text
    assert (
        "the best each device can do: a median of 305 images a second (range 300 to 310, n=2, too few windows)" in text
    )


def test_joules_come_with_their_boundary():
    energy = {"energy_joules": 64.0, "energy_method": "nvml", "energy_boundary": "board"}
    assert "; 0.1 J an image (board)." in finding(point(**energy))


def test_the_limits_are_counted():
    text = finding(
        point((80.0, 90.0, 100.0, 110.0, 120.0, 130.0), dataset="digits-28px"), point(status="out_of_memory")
    )
    assert "Data: digits-28px in place of mnist." in text
    assert "1 of 2 points have a range and no interval" in text
    assert "1 of 2 points are unstable. 1 of 2 points failed (out of memory)." in text
    assert "1 of 1 points have a range and no interval" in finding(point((100.0, 101.0)))


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ((PRINTED,), "Published: 19.6 (printed-box, mps) s an epoch."),
        ((PRINTED | {"seconds": None, "loss": 2.0},), "Published, without a rate or a time: printed-box."),
        ((), "Nothing is published of it."),
    ],
)
def test_where_nothing_was_measured_it_says_so(printed, words):
    text = finding(printed=printed, sentences=())
    assert text == f"{layout.question(STUDY)} {words} Nothing of it was measured here yet."


def test_a_study_that_failed_alone_was_tried():
    text = finding(point(status="unavailable"), sentences=())
    assert text.endswith("1 of 1 points failed (unavailable).")
    assert "Nothing of it was measured" not in text
