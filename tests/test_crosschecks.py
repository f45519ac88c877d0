"""Cross-checks of rows: honest rows that are odd are accepted, planted contradictions are refused
by their rule, and what an instrument of ours got wrong is unproven with its reason."""

from datetime import UTC, datetime, timedelta

import pytest
import yaml

from benchbook.judging import verdicts
from benchbook.machine import condition, context, layout
from benchbook.rows import crosschecks
from benchbook.studies.checks import CHECKS
from made import runs
from made.rows import make_rows
from made.runs import FLOPS, LATER, send

RATE = FLOPS * 640 / 2.2  # FLOP/s of these rows; a ceiling in the tables is this over that number
# What machines and runs have in common; honest runs, of most oddities one; and of instruments that are
# wrong the options of an honest run, the change of its windows (their length's factor, of all or of one;
# or columns), and the reason against its point.
TABLES = yaml.safe_load("""
kinds:
  - &mac {device: mps, known: {system: macOS 15.1}}
  - &soc {energy_joules: 11.0, energy_method: apple_ioreport, energy_boundary: soc}
  - &gpu {device: cuda, energy_method: nvml, energy_boundary: board}
  - &keras {framework: tensorflow, study: segmentation_scaling, parameters: null, flops_per_sample: null,
      image_size: 512, dataset: triangles-512px, asked: {framework: tensorflow}}
  - &tuned {variant: tuned, asked: {variant: tuned}}
  - &later {start: 2026-11-22 05:10:32Z}
oddities:
  slept 10 minutes between two windows: {asleep: 600.0}
  slept 8 hours between two windows: {asleep: 28800.0}
  clock set back 1.5 s: {set_by: -1.5}
  clock set back 5 s: {set_by: -5.0}
  clock set back 1 h, and the process's time with it: {set_by: -3600.0}
  clock set forward 1 h: {set_by: 3600.0}
  clock at the end of 32 bits: {start: 2038-01-19 03:14:07Z}
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
  bf16 units of a CPU whose bf16 was not calibrated: {<<: *tuned, ceiling: 3, precision: amp_bf16}
  calibrated in a quarter of the cores, then without the limit:
    [{ceiling: 2.88, slower: 4.0}, {<<: *later, session: session-2}]
  calibrated while a neighbour took two thirds: {ceiling: 2.16}
  a Mac whose counter moves every 2 s: {<<: [*mac, *soc], pause: 2.2}
  a Mac whose counter failed: {<<: *mac, pause: 2.2}
  a Mac that was busy when idle: {<<: [*mac, *soc], idle_watts: 12.0}
  a GPU of 1 kW: {<<: *gpu, energy_joules: 2200.0}
  8 GPUs of 1.2 kW: {<<: *gpu, energy_joules: 21120.0, device_count: 8, asked: {device_count: 8}}
  ROCm's TensorFlow: {<<: *keras, device: cuda, packages: {tensorflow-rocm: 2.20.0}}
  nightly TensorFlow: {<<: *keras, framework_version: 2.22.0-dev1, packages: {tf-nightly: 2.22.0.dev1}}
  a chip with another name later: [{chip: AMD EPYC}, {<<: *later, chip: AMD EPYC 9R14}]
  My-Mac, later my-mac: [{machine: My-Mac}, {<<: *later, machine: my-mac}]
  names that look alike: [{machine: lab-1}, {<<: *later, machine: lab-l1},
    {machine: node1, start: 2026-11-22 06:10:32Z}, {machine: nodel, start: 2026-11-22 07:10:32Z}]
  a squared loss of one-hot targets: {model: mine, dataset: loader, image_size: null, parameters: 12, loss: 0.05,
    evaluated: {accuracy: 0.6, accuracy_metric: top1, loss: 0.05}}
  stopped after 3 of 6 windows, then repeated: [{stopped_after: 3}, *later]
wrong:
  - [{ceiling: 3}, {}, [ceiling, 3.0]]  # a clock that does not wait
  - [{ceiling: 2.4}, {}, null]
  - [{<<: *tuned, ceiling: 3, ceiling_in: bf16, precision: amp_bf16}, {}, [ceiling, 3.0]]
  - [{ceiling: 3, session: s}, {session: t}, null]
  - [{<<: [*mac, *soc]}, {energy_joules: 11000.0}, [watts, 5000.0, soc]]  # mJ read as J
  - [{<<: *gpu, energy_joules: 600.0}, {energy_joules: 600000.0}, [watts, 272727.0, board]]
  - [*gpu, {energy_joules: 3900.0}, null]
  - [{}, {factor: 1.1}, [clock, 0.22]]  # its clock runs in sleep
  - [{}, {factor: 1.01, index: 2}, [clock, 0.022]]
  - [{}, {factor: 0.9}, [clock, -0.22]]
  - [{}, {factor: 0.99}, null]
""")
AHEAD = {"validated at once": timedelta(hours=2), "a year": timedelta(days=366)}
ODDITIES = TABLES["oddities"] | {
    f"a clock ahead, {name}": {"start": datetime.now(UTC) + time} for name, time in AHEAD.items()
}
INSTRUMENTS = {"ceiling", "watts", "clock"}


def a_run(ceiling=None, **options):
    return runs.a_run(ceiling=ceiling and RATE / ceiling, **options)


def judged(runs) -> dict[str, tuple]:
    """Return the reasons against the points of runs, by code."""
    described = {manifest["run_id"]: manifest for _, manifest in runs}
    rows = make_rows([row for lines, _ in runs for row in lines])
    found = verdicts.summarise(rows, condition.samples(described))["verdict"]
    return {code: values for verdict in found if verdict for code, *values in verdict.reasons}


@pytest.mark.usefixtures("outputs")
@pytest.mark.parametrize("oddity", ODDITIES)
def test_an_honest_oddity_is_accepted(oddity, command):
    given = ODDITIES[oddity]
    runs = [a_run(**options) for options in (given if isinstance(given, list) else [given])]
    number = send(runs)
    status, said = command("validate", layout.outputs() / "runs")
    assert (status, f"{number} rows in" in said) == (0, True), said
    assert not INSTRUMENTS & judged(runs).keys()


def changed(row: dict, factor: float = 1.0, index: int | None = None, **columns) -> dict:
    """Return a row of a window that took so many times as long, with other columns."""
    if row["seconds"] and index in (None, row["index"]):
        seconds = row["seconds"] * factor
        row = row | {"seconds": seconds, "samples_per_second": row["samples"] / seconds}
    return row | columns


@pytest.mark.parametrize(("options", "change", "reason"), TABLES["wrong"])
def test_what_an_instrument_got_wrong_is_unproven_with_the_reason_and_refused_nowhere(
    options, change, reason
):
    rows, manifest = a_run(**options)
    assert (
        reason is None
        or options.get("ceiling")
        or not INSTRUMENTS & judged([(rows, manifest)]).keys()
    )
    rows = [changed(row, **change) if row["phase"] == "train" else row for row in rows]
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
        copy = [changed(row, 1.01) for row in copy]
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
