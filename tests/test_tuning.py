"""Tuned means faster: what a search promised is confirmed in the same kernel, or the reference is measured."""

import json
import platform

import pandas
import pytest

from benchbook.frameworks import devices
from benchbook.frameworks.workload import Settings
from benchbook.judging import confirmation, intervals
from benchbook.judging.intervals import History
from benchbook.measuring import measure, protocol, search, tuning
from benchbook.rows import records
from fakes import Clock, FakeWorkload, run
from rows import make_row, make_rows

PROMISED, CHOSEN = 1.27, Settings("amp_bf16", channels_last=True)
QUIET = History(squares=20 * 0.01**2, freedom=20)  # kernels of this machine differ by 1 %


class Timed(FakeWorkload):
    """A workload whose step takes so many seconds, with a loader of so many workers."""

    def __init__(self, clock, seconds, settings, num_workers=0):
        super().__init__(clock)
        self.seconds, self.settings, self.num_workers = seconds, settings, num_workers

    def description(self):
        told = {"precision": self.settings.precision, "compiled": False, "num_workers": self.num_workers}
        return super().description() | told

    def batches(self, epoch):
        return iter([(epoch, position, 4) for position in range(3)])

    def step(self, batch):
        self.clock.advance(self.seconds)
        self.log.append(batch)
        return 0.5


@pytest.fixture
def clock(monkeypatch):
    fake = Clock()
    monkeypatch.setattr(measure, "time", fake)
    monkeypatch.setattr(measure, "open_sensor", lambda device: measure.NoSensor())
    return fake


@pytest.fixture
def searches(monkeypatch):
    """Let every search promise PROMISED for CHOSEN, whatever is true; return the limits that were asked for."""
    limits = []

    def fastest(build, device, time_limit_seconds, parity_steps):
        build(CHOSEN)
        limits.append(time_limit_seconds)
        trial = vars(CHOSEN) | {"outcome": "taken", "ratio": PROMISED, "reason": None}
        return search.Outcome(CHOSEN, pandas.DataFrame([trial], columns=search.COLUMNS))

    monkeypatch.setattr(search, "fastest", fastest)
    monkeypatch.setattr(devices, "keep_memory", lambda: None)  # it would last for all tests that follow
    return limits


def choose(folder, clock, tuned_over_reference, number=1, session="a-session", num_workers=0):
    """Choose for a point whose tuned step is so many times as fast as the reference's, and train a window of it."""
    record = run(folder, f"20260101T00000{number}Z-00000000")
    record.manifest = {"commit": "a-commit"}
    stated = {"search_seconds": 10.0, "data_resident": True}
    record.describe(session=session, variant="tuned", settings=stated)
    built = {}

    def build(side, seconds):
        return lambda settings: built.setdefault(side, Timed(clock, seconds, settings, num_workers))

    makes = build("tuned", 1.0 / tuned_over_reference), build("reference", 1.0)
    choice = tuning.choose(record, makes[0](CHOSEN).device, *makes, search_seconds=10, parity_steps=1, window_seconds=4)
    workload = choice.build(settings=choice.settings)
    record.describe(**workload.description())
    rows = protocol.measure_windows(workload, record, protocol.Plan(num_windows=6))
    record.end()
    return choice, rows, built


def test_what_a_search_promised_and_windows_did_not_confirm_is_not_called_tuned(tmp_path, clock, searches):
    choice, rows, _ = choose(tmp_path, clock, 0.95)
    assert (choice.chosen, choice.settings) == ("reference", Settings())
    assert choice.confirmed.value == pytest.approx(0.95)
    assert "nothing faster found" in str(choice)
    trained = rows[rows["phase"] == "train"]
    assert set(trained["precision"]) == {"fp32"}
    assert trained["samples_per_second"].iloc[0] == pytest.approx(4.0)  # the reference's rate
    shown = trained["settings"].iloc[0]
    assert (shown["chosen"], shown["data_resident"], shown["channels_last"]) == ("reference", False, False)
    (line,) = confirmation.table(rows, {}).to_dict("records")
    assert line["outcome"] == "tuned: nothing faster found"
    assert (line["promised"], line["confirmed"]) == (PROMISED, pytest.approx(0.95))


def test_what_windows_confirm_is_measured_and_called_tuned(tmp_path, clock, searches):
    choice, rows, _ = choose(tmp_path, clock, 1.2)
    assert (choice.chosen, choice.settings, searches) == ("tuned", CHOSEN, [10])
    trained = rows[rows["phase"] == "train"]
    assert set(trained["precision"]) == {"amp_bf16"}
    assert trained["settings"].iloc[0]["data_resident"]
    (line,) = confirmation.table(rows, {}).to_dict("records")
    assert (line["outcome"], line["confirmed"], line["num_pairs"]) == ("tuned", pytest.approx(1.2), 6)


@pytest.mark.parametrize(("library", "told"), [("glibc", True), ("", None)])
@pytest.mark.parametrize("ratio", [1.2, 0.95])
def test_a_tuned_kernel_keeps_its_memory_from_its_search_on_where_the_c_library_can(
    tmp_path, clock, searches, monkeypatch, ratio, library, told
):
    """Memory that is kept is kept for good: the reference's windows that decide must have it too, or neither."""
    monkeypatch.setattr(platform, "libc_ver", lambda: (library, ""))
    searched = []
    monkeypatch.setattr(devices, "keep_memory", lambda: searched.append(len(searches)))
    _, rows, _ = choose(tmp_path, clock, ratio)
    assert searched == ([0] if told else [])
    assert rows["settings"].iloc[-1].get("keeps_memory") is told  # nothing faster found says so as well


def test_windows_of_both_alternate_and_are_long_enough(tmp_path, clock, searches):
    _, rows, _ = choose(tmp_path, clock, 1.2)
    windows = rows[rows["phase"] == "confirm"]
    assert [settings["side"][0] for settings in windows["settings"]] == list("rttrrttrrttr")
    assert windows["samples"].nunique() == 1
    assert windows["seconds"].min() >= 4.0
    assert windows["settings"].iloc[1]["promised"] == PROMISED


def test_whoever_prepares_batches_ahead_has_done_so_before_each_turn(tmp_path, clock, searches):
    """A turn that began with workers that just start would be slower, and so would the other network's after it."""
    steps = {}
    for num_workers in (0, 2):
        _, rows, built = choose(tmp_path / str(num_workers), clock, 1.2, num_workers=num_workers)
        per_window = int(rows.loc[rows["phase"] == "confirm", "samples"].iloc[0]) // 4
        steps[num_workers] = sum(isinstance(entry, tuple) for entry in built["reference"].log)
    turns = 4  # of the reference
    assert steps[2] - steps[0] == turns * per_window


def test_a_point_is_searched_and_confirmed_once_in_a_session(tmp_path, clock, searches):
    first, *_ = choose(tmp_path, clock, 0.95, 1)
    second, rows, _ = choose(tmp_path, clock, 1.5, 2)  # faster by now: the point's windows stay of one setting
    assert (second.chosen, second.settings, len(searches)) == ("reference", first.settings, 1)
    pandas.testing.assert_frame_equal(second.trials, first.trials, check_dtype=False)
    assert "confirm" not in set(rows["phase"])
    assert rows["settings"].iloc[-1]["chosen"] == "reference"
    third, *_ = choose(tmp_path, clock, 1.5, 3, "another-session")
    assert (third.chosen, len(searches)) == ("tuned", 2)
    manifests = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]
    assert [manifest["tuning"]["chosen"] for manifest in manifests] == ["reference", "reference", "tuned"]


def alternated(*pairs, status="ok", **columns):
    """Return rows of the phase `confirm`: pairs of rates, the reference's first."""
    rows = []
    for number, (reference, tuned) in enumerate(pairs):
        sides = [("reference", reference), ("tuned", tuned)]
        for side, rate in sides if number % 2 == 0 else sides[::-1]:
            settings = {"side": side, "promised": PROMISED}
            told = {"phase": "confirm", "index": len(rows), "samples_per_second": float(rate), "settings": settings}
            rows.append(make_row(variant="tuned", point="tuned-cpu", status=status, **told | columns))
    return rows


NOISY = [(100, 107), (100, 106), (100, 97), (100, 108), (100, 107), (100, 106)]
CLEAR = [(100, 107), (100, 106), (100, 105), (100, 108), (100, 107), (100, 106)]


@pytest.mark.parametrize(
    ("pairs", "history", "kind", "faster"),
    [
        (CLEAR, intervals.NO_HISTORY, "range", True),  # six of six: one in 64 by chance
        (NOISY, intervals.NO_HISTORY, "range", False),
        (CLEAR, QUIET, "interval", True),
        (CLEAR, History(20 * 0.06**2, 20), "interval", False),  # kernels here differ by as much
    ],
)
def test_tuned_is_faster_only_beyond_the_interval_of_what_kernels_differ(pairs, history, kind, faster):
    ratio = confirmation.ratio(make_rows(alternated(*pairs)), history)
    assert (ratio.kind, confirmation.is_faster(ratio)) == (kind, faster)


def test_a_window_that_diverged_confirms_nothing():
    assert confirmation.ratio(make_rows(alternated(*CLEAR, status="diverged"))) is None
    assert not confirmation.is_faster(None)


@pytest.mark.parametrize(
    ("variant", "settings", "name"),
    [
        ("reference", {"search_seconds": 0.0}, "reference"),
        ("tuned", {"search_seconds": 0.0}, "not tuned"),
        ("tuned", {"search_seconds": 10.0}, "tuned, not confirmed"),
        ("tuned", {"search_seconds": 10.0, "chosen": "reference"}, "tuned: nothing faster found"),
        ("tuned", {"search_seconds": 10.0, "chosen": "tuned"}, "tuned"),
        (None, {}, None),
    ],
)
def test_a_variant_is_called_what_was_shown_of_it(variant, settings, name):
    assert confirmation.name({"variant": variant, "settings": settings}) == name
    assert confirmation.name({"variant": name, "settings": settings}) == name  # of a name its own


def test_rows_of_windows_that_decide_obey_the_schema(tmp_path):
    path = tmp_path / "rows.csv"
    for row in alternated(*CLEAR):
        records.append(path, row)
    assert len(records.read(path)) == 12
