"""Tuned means faster: a search takes what is faster and right, and what it promises is confirmed
in the same process.

Where it is not, the reference is measured.
"""

import importlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pandas
import pytest
import torch
import yaml

from benchbook import datasets
from benchbook.frameworks import devices
from benchbook.frameworks.workload import Settings
from benchbook.judging import confirmation, verdicts
from benchbook.judging.agreement import Agreement
from benchbook.measuring import parity, protocol, tuned
from benchbook.studies.mnist_speedup import plan as mnist
from made.fakes import CPU, FakeWorkload, run
from made.rows import make_row, make_rows


@pytest.fixture
def searched(monkeypatch, clock):
    """Return what searches among workloads of known seconds, and notes what was built, timed and
    compared."""
    monkeypatch.setattr(tuned, "time", clock)

    def search(seconds, limit, changes, build_seconds=1.0, parity_seconds=2.0, wrong=()):
        steps, compared = [], []

        def build(settings):
            if settings.compiled:
                raise RuntimeError(f"no compiler here, {Path.home()}")
            clock.advance(build_seconds)
            workload = Timed(clock, seconds(settings), settings)
            workload.mean_loss = lambda losses: 0.0  # it takes no time
            workload.log = type(
                "Log", (list,), {"append": lambda self, entry: steps.append(settings)}
            )()
            return workload

        def check(workload, record, num_steps):
            clock.advance(parity_seconds)
            compared.append(workload.settings)
            return Agreement(workload.settings.precision not in wrong, "planted", num_steps)

        monkeypatch.setattr(parity, "check", check)
        begun = clock.seconds
        settings, trials = tuned.fastest(build, CPU, limit, 1, changes)
        return settings, pandas.DataFrame(trials), clock.seconds - begun, steps, compared

    return search


FACTORS = {"amp_bf16": 0.5, "amp_fp16": 0.4}
FIVE = [
    {"channels_last": True},
    {"fused": True},
    {"precision": "amp_bf16"},
    {"autotuned": True},
    {"compiled": True},
]


def of_settings(step):
    """Return seconds of a step of so many at the reference's settings: bf16 halves it, channels
    last take a tenth."""
    return lambda made: (
        step
        * FACTORS.get(made.precision, 1.0)
        * (0.9 if made.channels_last else 1)
        * (1.2 if made.fused else 1)
    )


@pytest.mark.parametrize(("step", "limit"), [(0.001, 20), (0.3, 30), (1.0, 60), (2.0, 90)])
def test_a_search_tries_every_candidate_within_its_limit(searched, step, limit):
    settings, trials, seconds, _, compared = searched(of_settings(step), limit, FIVE)
    assert settings == Settings("amp_bf16", channels_last=True)
    assert trials["outcome"].tolist() == [
        "not fastest",
        "not faster",
        "taken",
        "not faster",
        "unsupported",
    ]
    assert (
        trials["reason"].iloc[-1] == "RuntimeError: no compiler here, ~"
    )  # manifests are published
    assert compared == [settings]
    assert seconds <= limit
    assert (trials["seconds"].iloc[:4] > 0).all()
    assert tuned.promised(trials.to_dict("records")) == pytest.approx(1 / 0.45)


@pytest.mark.parametrize("limit", [1e-6, 6.0, 20.0, 40.0, 120.0])
def test_no_search_overruns_its_limit_by_more_than_one_trial(searched, limit):
    settings, trials, seconds, *_ = searched(of_settings(4.0), limit, FIVE)
    longest = 1.0 + 5 * 4.0 * 1.2  # a build and five steps
    assert seconds <= max(limit, 1.0 + 4.0) + longest
    untried = set(trials["outcome"]) & {"no time left"}
    assert bool(untried) == (limit < 120)
    if limit < 1:  # the first network alone took longer
        assert (settings, set(trials["outcome"])) == (Settings(), untried)
        assert tuned.promised(trials.to_dict("records")) == 1


def test_a_winner_that_float64_refuses_gives_way_to_the_next(searched):
    changes = [{"precision": "amp_bf16"}, {"precision": "amp_fp16"}]
    settings, trials, _, _, compared = searched(of_settings(0.3), 60, changes, wrong=("amp_fp16",))
    assert [each.precision for each in compared] == ["amp_fp16", "amp_bf16"]
    assert settings == Settings("amp_bf16")
    assert trials["outcome"].tolist() == ["taken", "parity failed"]
    settings, trials, *_ = searched(of_settings(0.3), 60, changes, wrong=("amp_fp16", "amp_bf16"))
    assert (settings, set(trials["outcome"])) == (Settings(), {"parity failed"})


def test_a_setting_that_is_far_slower_is_given_up_after_a_step(searched):
    slow = lambda made: 30.0 if made.precision == "amp_bf16" else 0.5  # noqa: E731
    _, trials, _, steps, compared = searched(slow, 120, [{"precision": "amp_bf16"}])
    assert trials["outcome"].tolist() == ["not faster"]
    assert steps.count(Settings("amp_bf16")) == 2  # a warm-up and a step
    assert compared == []  # what is slower is not worth float64


@pytest.mark.parametrize(
    ("best", "trial", "outcome"),
    yaml.safe_load("""
- [[1.0, 1.0], [0.9, 0.9], taken]
- [[1.0, 1.0], [0.9, 3.0], taken]  # other load slows a window, and speeds up none
- [[3.0, 1.0], [1.0, 1.0], not faster]
- [[3.0, 3.0], [2.9, 2.8], taken]
"""),
)
def test_a_disturbed_window_neither_hides_a_gain_nor_makes_one(searched, best, trial, outcome):
    left = {
        name: iter([1.0, *windows]) for name, windows in {"fp32": best, "amp_bf16": trial}.items()
    }
    _, trials, *_ = searched(
        lambda made: left[made.precision].__next__, 60, [{"precision": "amp_bf16"}]
    )
    assert trials["outcome"].tolist() == [outcome]


def test_a_trial_that_ends_its_process_ends_neither_the_search_nor_the_point(monkeypatch, tmp_path):
    """As Metal's assertions do; the kind of device says that this may happen, and its trials go
    apart."""
    monkeypatch.setitem(devices.KINDS, "cpu", replace(devices.KINDS["cpu"], aborts=True))
    digits = datasets.load("digits")
    (tmp_path / "of_a_user.py").write_text(
        "BATCH_SIZE = 16\ndef batch_size():\n    return BATCH_SIZE\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    users = importlib.import_module(
        "of_a_user"
    ).batch_size  # a process of its own has to import it from there
    few = replace(
        digits, train_images=digits.train_images[:64], train_labels=digits.train_labels[:64]
    )

    def build(settings):  # as in a notebook's cell: pickle alone could not send it
        if settings.channels_last:
            os.abort()
        return mnist.Plan.build(
            few, CPU, "controlled", data_resident=True, batch_size=users(), settings=settings
        )

    settings, trials = tuned.fastest(build, CPU, 600, 1, [{"channels_last": True}])
    assert (settings, [trial["outcome"] for trial in trials]) == (Settings(), ["unsupported"])
    assert "SIGABRT" in trials[0]["reason"]


def test_a_cpu_that_only_emulates_bfloat16_is_not_asked_to(monkeypatch):
    for does in (True, False):
        monkeypatch.setattr(
            torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda does=does: does, raising=False
        )
        assert ({"precision": "amp_bf16"} in tuned.candidates(CPU)) == does


PROMISED, CHOSEN = 1.27, Settings("amp_bf16", channels_last=True)


class Timed(FakeWorkload):
    """A workload whose step takes so many seconds, or what a function returns, with a loader of
    so many workers."""

    def __init__(self, clock, seconds, settings, num_workers=0):
        super().__init__(clock)
        self.seconds, self.settings, self.num_workers = seconds, settings, num_workers

    def description(self):
        told = {
            "precision": self.settings.precision,
            "compiled": False,
            "num_workers": self.num_workers,
        }
        return super().description() | told

    def batches(self, epoch):
        return iter([(epoch, position, 4) for position in range(3)])

    def step(self, batch):
        self.clock.advance(self.seconds() if callable(self.seconds) else self.seconds)
        self.log.append(batch)
        return 0.5


@pytest.fixture
def searches(monkeypatch):
    """Let every search promise PROMISED for CHOSEN, whatever is true; return the limits that
    were asked for."""
    limits = []

    def fastest(build, device, time_limit_seconds, parity_steps, changes):
        build(CHOSEN)
        limits.append(time_limit_seconds)
        reasons = [
            None,
            "RuntimeError: /secret/path: hf_token",
            "its process ended with signal 6: /secret/path",
        ]
        trials = [
            vars(Settings("fp16")) | {"outcome": "unsupported", "reason": reason}
            for reason in reasons
        ]
        trials[0] |= vars(CHOSEN) | {"outcome": "taken", "ratio": PROMISED}
        return CHOSEN, [dict.fromkeys(tuned.COLUMNS) | trial for trial in trials]

    monkeypatch.setattr(tuned, "fastest", fastest)
    return limits


def choose(folder, clock, tuned_over_reference, number=1, session="a-session", num_workers=0):
    """Choose for a point whose tuned step is so many times as fast as the reference's, and train
    a window of it.

    Returns settings, manifest, rows, and the workloads that were built.
    """
    record = run(folder, f"20260101T00000{number}Z-00000000")
    record.manifest = {"commit": "a-commit"}
    stated = {"search_seconds": 10.0, "data_resident": True}
    record.describe(session=session, variant="tuned", settings=stated)
    built = {}

    def build(side, seconds):
        return lambda settings: built.setdefault(side, Timed(clock, seconds, settings, num_workers))

    makes = build("tuned", 1.0 / tuned_over_reference), build("reference", 1.0)
    device, limits = (
        makes[0](CHOSEN).device,
        {"search_seconds": 10, "num_parity_steps": 1, "window_seconds": 4},
    )
    make, settings = tuned.choose(
        record, device, *makes, trial=makes[0], plain=Settings(), changes=None, given=limits
    )
    workload = make(settings=settings)
    record.describe(**workload.description())
    protocol.measure_windows(workload, record, protocol.Amount(num_windows=6))
    rows = record.rows()
    record.end()
    return settings, record.manifest, rows, built


def test_what_a_search_promised_and_windows_did_not_confirm_is_not_called_tuned(
    tmp_path, clock, searches
):
    settings, manifest, rows, _ = choose(tmp_path, clock, 0.95)
    assert (manifest["tuning"]["chosen"], settings) == ("reference", Settings())
    trained = rows[rows["phase"] == "train"].iloc[-1]
    assert (trained["precision"], trained["samples_per_second"]) == (
        "fp32",
        pytest.approx(4.0),
    )  # the reference's
    shown = trained["settings"]
    assert (shown["chosen"], shown["data_resident"], shown["channels_last"]) == (
        "reference",
        False,
        False,
    )
    (line,) = confirmation.table(rows).to_dict("records")
    assert line["outcome"] == "tuned: nothing faster found"
    assert (line["promised"], line["confirmed"]) == (PROMISED, pytest.approx(0.95))


def test_what_windows_confirm_by_turns_is_measured_and_called_tuned(tmp_path, clock, searches):
    settings, manifest, rows, _ = choose(tmp_path, clock, 1.2)
    assert (manifest["tuning"]["chosen"], settings, searches) == ("tuned", CHOSEN, [10])
    windows, trained = (rows[rows["phase"] == phase] for phase in ("confirm", "train"))
    assert [settings["side"][0] for settings in windows["settings"]] == list("rttrrttr")
    assert (
        4.0 <= windows["seconds"].min() <= windows["seconds"].max() < 6.0
    )  # the slower one's last no longer
    (path,) = tmp_path.glob("*.json")
    reasons = [
        trial["reason"]
        for trial in json.loads(path.read_text(), parse_constant=pytest.fail)["trials"]
    ]
    assert reasons[1:] == ["RuntimeError", "its process ended with signal 6"]
    assert windows["settings"].iloc[1]["promised"] == PROMISED
    assert set(trained["precision"]) == {"amp_bf16"}
    assert trained["settings"].iloc[0]["data_resident"]
    (line,) = confirmation.table(rows).to_dict("records")
    assert (line["outcome"], line["confirmed"], line["num_pairs"]) == (
        "tuned, not confirmed",
        pytest.approx(1.2),
        4,
    )
    settings, manifest, more, _ = choose(tmp_path, clock, 1.25, 2)
    assert (manifest["tuning"]["chosen"], settings, searches) == ("tuned", CHOSEN, [10])
    (line,) = confirmation.table(pandas.concat([rows, more], ignore_index=True)).to_dict("records")
    assert (line["outcome"], line["interval"], line["num_pairs"]) == ("tuned", "interval", 8)
    diverged = rows.assign(status=rows["status"].where(rows["phase"] != "confirm", "diverged"))
    assert confirmation.ratio(diverged) is None
    assert not confirmation.is_faster(None)


def test_whoever_prepares_batches_ahead_has_done_so_before_each_turn(tmp_path, clock, searches):
    """A turn that began with workers that just start would be slower, and so would the other
    network's after it."""
    steps = {}
    for num_workers in (0, 2):
        *_, rows, built = choose(tmp_path / str(num_workers), clock, 1.2, num_workers=num_workers)
        per_window = int(rows.loc[rows["phase"] == "confirm", "samples"].iloc[0]) // 4
        steps[num_workers] = sum(isinstance(entry, tuple) for entry in built["reference"].log)
    turns = 3  # of the reference
    assert steps[2] - steps[0] == turns * per_window


def test_a_point_is_searched_and_confirmed_once_in_a_session(tmp_path, clock, searches):
    settings, first, *_ = choose(tmp_path, clock, 0.95, 1)
    again, second, rows, _ = choose(
        tmp_path, clock, 1.5, 2
    )  # faster by now: the point's windows stay of one setting
    assert (again, len(searches)) == (settings, 1)
    assert second["trials"] == first["trials"]
    assert "confirm" not in set(rows["phase"])
    assert rows["settings"].iloc[-1]["chosen"] == "reference"
    choose(tmp_path, clock, 1.5, 3, "another-session")
    assert len(searches) == 2
    manifests = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]
    assert [manifest["tuning"]["chosen"] for manifest in manifests] == [
        "reference",
        "reference",
        "tuned",
    ]


def alternated(*pairs, **columns):
    """Return rows of the phase `confirm`: pairs of rates, the reference's first."""
    rows = []
    for number, pair in enumerate(pairs):
        sides = list(zip(("reference", "tuned"), pair, strict=True))
        for side, rate in sides if number % 2 == 0 else sides[::-1]:
            settings = {"side": side, "promised": PROMISED}
            told = {
                "phase": "confirm",
                "index": len(rows),
                "samples_per_second": float(rate),
                "settings": settings,
            }
            rows.append(make_row(variant="tuned", point="tuned-cpu", **told | columns))
    return rows


CLEAR = [(100, 107), (100, 106), (100, 105), (100, 108), (100, 107), (100, 106)]


@pytest.mark.parametrize(
    ("levels", "kind", "faster"),
    [
        ([1.0], "range", False),  # six of six, and another process may say otherwise
        ([1.0, 1.0], "interval", True),
        ([1.0, 0.95], "interval", False),  # processes differ by as much
    ],
)
def test_tuned_is_faster_only_with_an_interval_over_processes(levels, kind, faster):
    runs = [f"run-{number}" for number in range(len(levels))]
    pairs = {
        run: [(slow, fast * level) for slow, fast in CLEAR]
        for run, level in zip(runs, levels, strict=True)
    }
    rows = [row for run_id, own in pairs.items() for row in alternated(*own, run_id=run_id)]
    ratio = confirmation.ratio(make_rows(rows))
    assert (ratio.kind, confirmation.is_faster(ratio)) == (kind, faster)
    told = {"variant": "tuned", "point": "tuned-cpu", "settings": {"chosen": "tuned"}}
    rows = make_rows([*rows, *(make_row(run_id=run_id, **told) for run_id in runs)])
    name = "tuned" if faster else "tuned, not confirmed"
    assert confirmation.table(rows)["outcome"].tolist() == [name]
    assert verdicts.summarise(rows)["variant"].tolist() == [name]


@pytest.mark.parametrize(
    ("variant", "settings", "name"),
    yaml.safe_load("""
- [reference, {search_seconds: 0.0}, reference]
- [tuned, {search_seconds: 0.0}, not tuned]
- [tuned, {search_seconds: 10.0}, "tuned, not confirmed"]
- [tuned, {search_seconds: 10.0, chosen: reference}, "tuned: nothing faster found"]
- [tuned, {search_seconds: 10.0, chosen: tuned}, tuned]
- [null, {}, null]
"""),
)
def test_a_variant_is_called_what_was_shown_of_it(variant, settings, name):
    assert confirmation.name({"variant": variant, "settings": settings}) == name
    assert confirmation.name({"variant": name, "settings": settings}) == name  # of a name its own
