"""Cross-checks of rows: honest rows that are odd are accepted, planted contradictions are refused
by their rule, and what an instrument of ours got wrong is unproven with its reason."""

import json
import zlib
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from benchbook.judging import verdicts
from benchbook.machine import condition, layout
from benchbook.rows import crosschecks
from benchbook.studies.experiments.parameters import point_name
from made import rows as written
from made.rows import make_row, make_rows

START = datetime(2026, 11, 22, 4, 10, 32, tzinfo=UTC)
FLOPS = 71_565_312.0  # of MNIST's network, a sample
LENGTHS = (2.21, 2.2, 2.19, 2.22, 2.23, 2.18)  # seconds of windows


def a_run(
    study="mnist_speedup",
    machine="desk",
    chip="Chip A",
    start=START,
    pause=0.01,
    asleep=0.0,
    set_by=0.0,
    slower=1.0,
    stopped_after=None,
    parity="ok",
    ceiling=None,
    ceiling_in="fp32",
    session="session-1",
    packages=(),
    asked=(),
    known=(),
    evaluated=(),
    **columns,
):
    """Return a run's rows and its manifest, as this library writes them.

    Args:
        pause, asleep: seconds between two windows, in which the computer is awake or sleeps.
        slower: the factor of the windows' lengths.
        set_by: seconds by which the clock is set before the fourth window.
        stopped_after: the number of windows after which Ctrl-C ends the run.
        parity: status of the comparison with float64; None: no rows of it.
        ceiling, ceiling_in: rate of a matrix product in the same session, in FLOP/s, and its precision.
        packages, asked, known, evaluated: values of the manifest's packages, parameters and
        machine, and columns of
            the row of phase `evaluate`.
    """
    parameters = {"variant": "reference", "device": columns.get("device", "cpu"), "framework": "torch"} | {
        "batch_size": 64, "dataset": "mnist", "num_parity_steps": 3, "num_windows": 6, "seed": 1,
    } | dict(asked)  # fmt: skip
    run_id = f"{start:%Y%m%dT%H%M%SZ}-{zlib.crc32(f'{machine} {start}'.encode()):08x}"
    same = {"study": study, "machine": machine, "chip": chip, "session": session, "run_id": run_id}
    same |= {
        "point": point_name(study, parameters),
        "device_count": 1,
        "precision": "fp32",
        "image_size": 28,
    }
    same |= {"parameters": 1_199_882, "flops_per_sample": FLOPS} | columns
    rows, awake, elapsed, ahead = [], 1000.0, 5000.0, 0.0

    def add(phase, **more):
        index = sum(row["phase"] == phase for row in rows)
        empty = dict.fromkeys(("samples", "seconds", "samples_per_second", "input_seconds"))
        rows.append(make_row(**same | empty | {"phase": phase, "index": index} | more))

    if ceiling:
        product = {
            "model": "matmul",
            "flops_per_sample": 2.0 * 512**3,
            "parameters": None,
            "image_size": None,
        }
        product |= {
            "samples": 100,
            "precision": ceiling_in,
            "samples_per_second": ceiling / product["flops_per_sample"],
        }
        product |= {
            "seconds": 100 / product["samples_per_second"],
            "settings": {"matrix_size": 512},
        }
        add("calibrate", **product, study="calibrate", point="cpu", run_id=f"{run_id[:-4]}ca1b")
    for step in range(
        1, 1 + parameters["num_parity_steps"] if parity == "ok" else 2 if parity else 1
    ):
        add("parity", status=parity, settings={"step": step} if parity == "ok" else {})
    conditions = [{"awake_seconds": awake, "elapsed_seconds": elapsed}]
    for number, seconds in enumerate(LENGTHS[:stopped_after]):
        seconds *= slower * (1 + zlib.crc32(run_id.encode()) % 997 / 1e5)
        ahead += set_by if number == 3 else 0.0
        begun = start + timedelta(seconds=elapsed - 5000.0 + ahead)
        samples = columns.get("samples", 640)
        measures = {
            "samples": samples,
            "steps": -(-samples // same.get("batch_size", 64)),
            "seconds": seconds,
        }
        measures |= {
            "samples_per_second": samples / seconds,
            "started_at": f"{begun:%Y-%m-%dT%H:%M:%S}Z",
        }
        settings = {"num_parity_steps": parameters["num_parity_steps"]}
        add(
            "train",
            **{
                "settings": settings,
                "input_seconds": 0.1,
                "page_faults": zlib.crc32(f"{run_id} {number}".encode()),
            }
            | measures
            | columns,
        )
        awake, elapsed = awake + pause + seconds, elapsed + pause + seconds + asleep
        conditions.append(
            {"awake_seconds": awake, "elapsed_seconds": elapsed, "repeat": 0, "index": number}
            | {"window_awake_seconds": seconds}
        )
    if stopped_after:
        add("train", status="interrupted", message="stopped by SIGINT")
    elif evaluated:
        add(
            "evaluate",
            **{"samples": 1000, "seconds": 1.0, "samples_per_second": 1000.0} | dict(evaluated),
        )
    about = {
        "name": machine,
        "chip": chip,
        "system": "Linux 6.8",
        "memory_bytes": 2**34,
        "accelerators": ["a GPU"],
    }
    manifest = {
        "run_id": run_id,
        "parameters": parameters,
        "machine": about | dict(known),
        "conditions": conditions,
    }
    manifest["environment"] = {"packages": {"torch": "2.11.0"} | dict(packages)}
    manifest["process_seconds"] = 25.0 + set_by
    return rows, manifest


LATER = START + timedelta(hours=1)
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


def send(runs) -> tuple[int, list]:
    """Write runs as they lie below outputs/runs; return the number of rows, and the runs' ids."""
    lines = [line for rows, _ in runs for line in rows]
    written.write(*lines)
    for rows, manifest in runs:
        for line in {line["run_id"]: line for line in rows}.values():
            path = (
                layout.point(line["machine"], line["study"], line["point"])
                / f"{line['run_id']}.json"
            )
            path.write_text(json.dumps(manifest if line["run_id"] == manifest["run_id"] else {}))
    return len(lines)


@pytest.mark.usefixtures("outputs")
@pytest.mark.parametrize("oddity", ODDITIES)
def test_an_honest_oddity_is_accepted(oddity, command):
    runs = [a_run(**options) for options in ODDITIES[oddity]]
    number = send(runs)
    status, said = command("validate", layout.outputs() / "runs")
    assert (status, f"{number} rows in" in said) == (0, True), said
    assert not INSTRUMENTS & judged(runs).keys()


GPT = {
    "study": "gpt_tokens",
    "model": "nanogpt_char_small",
    "image_size": None,
    "dataset": "tinyshakespeare-excerpt",
}
GPT |= {
    "parameters": 803_200,
    "flops_per_sample": 330_448_896.0,
    "sequence_length": 64,
    "batch_size": 12,
}
GPT |= {
    "asked": {
        "model": "nanogpt_char_small",
        "sequence_length": 0,
        "batch_size": 12,
        "dataset": "tinyshakespeare",
    }
}
TWICE = {"samples": 1280, "steps": 20}


def scaled(factor: float):
    """Return a change of a row: its window took so many times as long."""

    def change(row: dict) -> dict:
        seconds = row["seconds"] and row["seconds"] * factor
        return {"seconds": seconds, "samples_per_second": seconds and row["samples"] / seconds}

    return change


# The options of an honest run, the change of its rows by phase, and the column that is named.
CONTRADICTIONS = {
    "a rate of no window": ({}, "train", lambda row: {"samples_per_second": 300.0}, "samples_per_second"),
    "another image size": ({"asked": {"image_size": 28}}, "train", lambda row: {"image_size": 14}, "image_size"),
    "another point": ({}, None, lambda row: {"point": "tuned-cpu-3ee074f5"}, "point"),
    "published": ({}, None, lambda row: {"source": "published"}, "source"),
    "another framework": ({}, None, lambda row: {"framework": "jax"}, "framework"),
    "sequences of twice the length": (GPT, "train", lambda row: {"sequence_length": 128}, "sequence_length"),
    "two devices with twice the rate": (
        {}, "train", lambda row: TWICE | {"device_count": 2, "samples_per_second": 1280 / row["seconds"]},
        "device_count",
    ),
    "samples of twice the steps": (
        {}, "train", lambda row: {"samples": 1280, "samples_per_second": 1280 / row["seconds"]}, "samples",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_contradiction_is_refused_by_its_rule(case):
    options, phase, change, column = CONTRADICTIONS[case]
    rows, manifest = a_run(**options)
    described = {manifest["run_id"]: manifest}
    assert crosschecks.complaints(make_rows(rows), described) == {}
    rows = [row | change(row) if phase in (None, row["phase"]) else row for row in rows]
    [found] = crosschecks.complaints(make_rows(rows), described).values()
    assert found.partition(": ")[2].startswith(f"{column} is ")


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
    assert crosschecks.complaints(make_rows(rows), {manifest["run_id"]: manifest}) == {}
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
    [(run_id, reason)] = crosschecks.complaints(make_rows(first + copy), {}).items()
    assert (run_id, "are those of run" in reason) == ("20261122T051032Z-00000002", True)


def test_an_exception_while_a_run_is_checked_leaves_out_that_run(monkeypatch):
    def rule(row, known):
        return row["run_id"] == second[0]["run_id"] and 1 / 0

    (first, _), (second, _) = a_run(), a_run(start=LATER)
    monkeypatch.setattr("benchbook.rows.files.unexpected", (Exception,))
    monkeypatch.setattr(crosschecks, "RULES", [*crosschecks.RULES, rule])
    said = []
    kept = crosschecks.consistent(make_rows(first + second), {}, said.append)
    assert set(kept["run_id"]) == {first[0]["run_id"]}
    assert f"{second[0]['run_id']}.csv, line 2: it cannot be checked (ZeroDivisionError" in said[0]
