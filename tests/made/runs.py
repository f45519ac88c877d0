"""Runs as this library writes them: rows and a manifest that agree."""

import json
import zlib
from datetime import UTC, datetime, timedelta

from benchbook.machine import layout
from benchbook.studies.experiments.parameters import point_name
from made import rows as written
from made.rows import make_row

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
