"""Cross-checks of rows: honest rows that are odd are accepted, planted contradictions are refused
by their rule, and what an instrument of ours got wrong is unproven with its reason."""

from datetime import UTC, datetime, timedelta

import pytest
import yaml

from benchbook.judging import verdicts
from benchbook.machine import condition, context, layout
from benchbook.rows import crosschecks
from benchbook.studies.checks import CHECKS
from made.rows import make_rows
from made.runs import FLOPS, LATER, START, a_run, send

MAC = {"device": "mps", "known": {"system": "macOS 15.1"}}
SOC = {"energy_joules": 11.0, "energy_method": "apple_ioreport", "energy_boundary": "soc"}
GPU = {"device": "cuda", "energy_method": "nvml", "energy_boundary": "board"}
KERAS = {
    "framework": "tensorflow",
    "study": "segmentation_scaling",
    "parameters": None,
    "flops_per_sample": None,
}
KERAS |= {"image_size": 512, "dataset": "triangles-512px", "asked": {"framework": "tensorflow"}}
EIGHT = {"device_count": 8}
OWN = {
    "model": "mine",
    "dataset": "loader",
    "image_size": None,
    "parameters": 12,
}
RATE = FLOPS * 640 / 2.2  # FLOP/s of these rows
# The runs of each are honest: of those in this text one each.
ODDITIES = """
slept 10 minutes between two windows: {asleep: 600.0}
slept 8 hours between two windows: {asleep: 28800.0}
clock set back 1.5 s: {set_by: -1.5}
clock set back 5 s: {set_by: -5.0}
clock set back 1 h, and the process's time with it: {set_by: -3600.0}
clock set forward 1 h: {set_by: 3600.0}
a leap second: {started_at: "2026-12-31T23:59:60.5Z"}
four sockets of 500 W read as one package: {energy_method: rapl, energy_boundary: package, energy_joules: 4400.0}
a lost file of parity: {parity: null}
a container of 2 of 64 cores: {known: {usable_cores: 2, logical_cores: 64, memory_bytes: 256000000000}}
NVIDIA's container: {framework_version: 2.11.0a0+872d97.nv25.09, packages: {torch: 2.11.0a0+872d97.nv25.9}}
a Jetson: {device: cuda, pause: 1.2, known: {system: Linux 5.15-tegra}}
batch 4096: {batch_size: 4096, samples: 60000, asked: {batch_size: 4096}}
an epoch of one step: {batch_size: 1437, samples: 1437, dataset: digits-28px, dataset_samples: 1437,
  asked: {batch_size: 1437, dataset: digits}}
a loader that never waits: {input_seconds: 0.0}
a network folder of 1 s a row: {pause: 1.0}
a network folder of 2.5 s a row: {pause: 2.5}
float64 refused: {parity: unsupported}
"""
ODDITIES = {name: [options] for name, options in yaml.safe_load(ODDITIES).items()} | {
    "clock 2 h ahead, validated at once": [{"start": datetime.now(UTC) + timedelta(hours=2)}],
    "clock a year ahead": [{"start": datetime.now(UTC) + timedelta(days=366)}],
    "clock at the end of 32 bits": [{"start": datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC)}],
    "bf16 units of a CPU whose bf16 was not calibrated": [
        {"ceiling": RATE / 3, "precision": "amp_bf16", "variant": "tuned", "asked": {"variant": "tuned"}}
    ],
    "calibrated in a quarter of the cores, then without the limit": [
        {"ceiling": RATE / 0.72 / 4, "slower": 4.0}, {"start": LATER, "session": "session-2"},
    ],
    "calibrated while a neighbour took two thirds": [{"ceiling": RATE / 0.72 / 3}],
    "a Mac whose counter moves every 2 s": [MAC | SOC | {"pause": 2.2}],
    "a Mac whose counter failed": [MAC | {"pause": 2.2}],
    "a Mac that was busy when idle": [MAC | SOC | {"idle_watts": 12.0}],
    "a GPU of 1 kW": [GPU | {"energy_joules": 2200.0}],
    "8 GPUs of 1.2 kW": [GPU | {"energy_joules": 9600 * 2.2, "device_count": 8, "asked": EIGHT}],
    "ROCm's TensorFlow": [KERAS | {"device": "cuda", "packages": {"tensorflow-rocm": "2.20.0"}}],
    "nightly TensorFlow": [KERAS | {"framework_version": "2.22.0-dev1", "packages": {"tf-nightly": "2.22.0.dev1"}}],
    "a chip with another name later": [{"chip": "AMD EPYC"}, {"chip": "AMD EPYC 9R14", "start": LATER}],
    "My-Mac, later my-mac": [{"machine": "My-Mac"}, {"machine": "my-mac", "start": LATER}],
    "names that look alike": [
        {"machine": name, "start": START + timedelta(hours=hour)}
        for hour, name in enumerate(("lab-1", "lab-l1", "node1", "nodel"))
    ],
    "a squared loss of one-hot targets": [
        OWN | {"evaluated": {"accuracy": 0.6, "accuracy_metric": "top1", "loss": 0.05}, "loss": 0.05}
    ],
    "stopped after 3 of 6 windows, then repeated": [{"stopped_after": 3}, {"start": LATER}],
}  # fmt: skip


@pytest.mark.usefixtures("outputs")
@pytest.mark.parametrize("oddity", ODDITIES)
def test_an_honest_oddity_is_accepted(oddity, command):
    runs = [a_run(**options) for options in ODDITIES[oddity]]
    number = send(runs)
    status, said = command("validate", layout.outputs() / "runs")
    assert (status, f"{number} rows in" in said) == (0, True), said
    assert not INSTRUMENTS & judged(runs).keys()


def scaled(factor: float):
    """Return a change of a row: its window took so many times as long."""

    def change(row: dict) -> dict:
        seconds = row["seconds"] and row["seconds"] * factor
        return {"seconds": seconds, "samples_per_second": seconds and row["samples"] / seconds}

    return change


INSTRUMENTS = {"ceiling", "watts", "clock"}
TUNED = {"variant": "tuned", "asked": {"variant": "tuned"}}
BF16 = {"ceiling_in": "bf16", "precision": "amp_bf16"}


def judged(runs) -> dict[str, tuple]:
    """Return the reasons against the points of runs, by code."""
    described = {manifest["run_id"]: manifest for _, manifest in runs}
    rows = make_rows([row for lines, _ in runs for row in lines])
    found = verdicts.summarise(rows, condition.samples(described))["verdict"]
    return {code: values for verdict in found if verdict for code, *values in verdict.reasons}


# The options of an honest run, the change of its windows, and the reason against its point.
@pytest.mark.parametrize(
    ("options", "change", "reason"),
    [
        ({"ceiling": RATE / 3}, lambda row: {}, ("ceiling", 3.0)),  # a clock that does not wait
        ({"ceiling": RATE / 2.4}, lambda row: {}, None),
        (TUNED | {"ceiling": RATE / 3} | BF16, lambda row: {}, ("ceiling", 3.0)),
        ({"ceiling": RATE / 3, "session": "s"}, lambda row: {"session": "t"}, None),
        (MAC | SOC, lambda row: {"energy_joules": 11_000.0}, ("watts", 5000.0, "soc")),  # mJ read as J
        (GPU | {"energy_joules": 600.0}, lambda row: {"energy_joules": 600e3}, ("watts", 272_727.0, "board")),
        (GPU, lambda row: {"energy_joules": 3900.0}, None),
        ({}, scaled(1.1), ("clock", 0.22)),  # its clock runs in sleep
        ({}, lambda row: scaled(1.01)(row) if row["index"] == 2 else {}, ("clock", 0.022)),
        ({}, scaled(0.9), ("clock", -0.22)),
        ({}, scaled(0.99), None),
    ],
)  # fmt: skip
def test_what_an_instrument_got_wrong_is_unproven_with_the_reason_and_refused_nowhere(
    options, change, reason
):
    rows, manifest = a_run(**options)
    assert (
        reason is None
        or options.get("ceiling")
        or not INSTRUMENTS & judged([(rows, manifest)]).keys()
    )
    rows = [row | change(row) if row["phase"] == "train" else row for row in rows]
    assert CHECKS.complaints(make_rows(rows), {manifest["run_id"]: manifest}) == {}
    found = judged([(rows, manifest)])
    assert INSTRUMENTS & found.keys() == ({reason[0]} if reason else set())
    for code, *values in [reason] if reason else []:
        assert found[code] == [
            each if isinstance(each, str) else pytest.approx(each, rel=0.03) for each in values
        ]
        assert verdicts.REASONS[code][0] == verdicts.UNPROVEN


@pytest.mark.parametrize("has_noise", [False, True])
def test_a_copied_run_is_refused_and_its_original_stays(has_noise):
    memory = {"memory_method": "process_peak_resident"}
    first, _ = a_run(**memory)
    copy = [row | {"run_id": "20261122T051032Z-00000002", "session": "session-2"} for row in first]
    if has_noise:
        copy = [row | scaled(1.01)(row) for row in copy]
    [(run_id, reason)] = CHECKS.complaints(make_rows(first + copy), {}).items()
    assert (run_id, "are those of run" in reason) == ("20261122T051032Z-00000002", True)


def test_an_exception_while_a_run_is_checked_leaves_out_that_run(monkeypatch):
    def rule(row, known):
        return row["run_id"] == second[0]["run_id"] and 1 / 0

    (first, _), (second, _) = a_run(), a_run(start=LATER)
    context.change(strict=False)
    monkeypatch.setattr(crosschecks, "RULES", [*crosschecks.RULES, rule])
    said = []
    kept = CHECKS.consistent(make_rows(first + second), {}, said.append)
    assert set(kept["run_id"]) == {first[0]["run_id"]}
    assert f"{second[0]['run_id']}.csv, line 2: it cannot be checked (ZeroDivisionError" in said[0]
