"""Make the golden set: what the library says of committed and of made-up rows, and its networks'
first losses.

`python tests/golden.py` writes tests/golden from these rows alone, and `python tests/golden.py
losses` the losses of this kind of CPU. `--into FOLDER` writes elsewhere, for the test that
compares. This is the one file of the golden set that imports benchbook; the others know JSON.
"""

import argparse
import contextlib
import io
import multiprocessing
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pandas

from benchbook import studies
from benchbook.frameworks.workload import Settings
from benchbook.judging import agreement, confirmation
from benchbook.judging.verdicts import Verdict
from benchbook.machine import layout
from benchbook.measuring import tuned
from benchbook.measuring.window import endless
from benchbook.record import chips, predict, prices
from benchbook.record.predict import Question, Unknown
from benchbook.report import aggregation, claim_outcomes, closing, costs
from benchbook.running import profiles
from benchbook.studies.experiments.parameters import nested
from benchbook.studies.results.evidence import Evidence
from benchbook.studies.study import Study
from made import edges, golden_files, study_rows

ROOT = Path(__file__).resolve().parents[1]
MACHINE = "amd-epyc-2core-24gb"
NUM_LOSSES = 20
# One thread, and no GPU: sums of several threads are rounded in the order in which these end.
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    **dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
}
# What a record of a table is known by, as far as the table has it; and what is left out of it.
IDENTITY, PROSE = map(str.split, [
    """study machine point device framework variant loader source precision compiled dataset model batch_size image_size
    device_count kind size larger_chip image epoch epochs images_seen step""",
    """sentence arithmetic published reason note energy_note message title place session run_id started_at""",
])  # fmt: skip


def values() -> dict[str, dict]:
    """Return the records of each file, from the rows in BENCHBOOK_OUTPUTS and the published
    ones."""
    merged = aggregation.merge(layout.outputs() / "runs")
    evidence = merged.evidence
    every = evidence.rows[evidence.rows["source"] == "measured"]  # also those that do not speak
    tables = {
        "tuning": confirmation.table(evidence.measured),
        "parity": agreement.verdicts(evidence.measured),
    }
    for study in studies.every().values():
        tables |= behind(study, evidence)
    cost_table = costs.table(evidence, (), {})
    cost_table = cost_table[
        ["task", "machine", "source", "family", "devices", "memory_gb", "seconds", "low", "high"]
    ]
    return {
        "runs.json": {run: {"rows": len(own)} for run, own in every.groupby("run_id")},
        "summary.json": keyed(evidence.summary, ["study", "machine", "point"]),
        "claims.json": keyed(claim_outcomes.judged(evidence), ["id", "machine", "source"]),
        "findings.json": {
            study: {"finding": numbers(finding)} for study, finding in merged.findings.items()
        },
        "tables.json": {
            f"{name} | {key}": record
            for name, table in tables.items()
            for key, record in keyed(table, IDENTITY).items()
        },
        "costs.json": keyed(cost_table, ["task", "machine", "source", "family"]),
        "predictions.json": predictions(),
        "studies.json": dict(made_up()),
    }


def behind(study: Study, evidence: Evidence) -> dict[str, pandas.DataFrame]:
    """Return the tables behind a study's charts, by name; drawing them takes longer and adds no
    number."""
    makers = {
        name: make
        for chart in study.charts
        for name, make in {chart.name: chart.table, **chart.tables}.items()
    }
    return {name: make(evidence) for name, make in makers.items()}


def made_up() -> Iterator[tuple[str, dict]]:
    """Yield what each study says of rows that were made up, on two machines: tables, claims'
    quantities, a finding."""
    for name, study in studies.every().items():
        evidence = study_rows.given(name)
        tables = {
            f"{name} quantities": pandas.DataFrame(study.quantities(evidence)),
            **behind(study, evidence),
        }
        for title, table in tables.items():
            for key, record in keyed(table, [*IDENTITY, "name"]).items():
                yield f"{title} | {key}", record
        yield f"{name} finding", {"finding": numbers(" ".join(closing.sentences(evidence, study)))}
    for name, found in edges.found():
        if isinstance(found, list | pandas.DataFrame):
            found = keyed(pandas.DataFrame(found), [*IDENTITY, "name"])
        yield f"edge | {name}", {"found": numbers(found) if isinstance(found, str) else found}


def keyed(table: pandas.DataFrame, identity: list[str]) -> dict[str, dict]:
    """Return a table's lines by what they are of; of several of one name the later ones are
    numbered."""
    named, counts = {}, Counter()
    for line in table.to_dict("records"):
        parts = [
            line[name]
            for name in identity
            if name in line and pandas.notna(line[name]) and line[name] != ""
        ]
        key = " | ".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)
        counts[key] += 1
        left_out = (*PROSE, *identity)
        record = {
            name: value
            for name, value in line.items()
            if name not in left_out and value is not pandas.NA
        }
        if isinstance(record.get("verdict"), (str, Verdict)):
            record["verdict"] = re.split("[:;(]", str(record["verdict"]))[0].strip()
        named[f"{key} #{counts[key]}" if counts[key] > 1 else key] = record
    return named


def numbers(text: str) -> list[float]:
    """Return the numbers of some sentences, in their order."""
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def predictions() -> dict[str, dict]:
    """Return the answers to the questions of questions.csv."""
    answers = {}
    for question, _ in golden_files.questions():
        key = " | ".join(map(str, question.values()))
        try:
            rate = predict.rate(Question(**question))
        except Unknown:
            answers[key] = {"verdict": "refused"}
            continue
        chip = chips.resolve(question["chip"])
        answers[key] = {
            "rate": [rate.value, rate.low, rate.high],
            "usd_per_hour": sorted(prices.rental_offers(chip)["usd_per_hour"]),
            "purchase_usd": sorted(prices.purchase_prices(chip)["usd"]),
        }
    return answers


def losses() -> dict[str, dict]:
    """Return the first losses of each study, framework and variant of the smallest profile, on
    this CPU."""
    points = {}
    for point in profiles.read("smoke", device="cpu"):
        of = (
            point.study,
            point.parameters.get("framework", "torch"),
            point.parameters.get("variant", "reference"),
        )
        if point.study != "calibrate":
            points.setdefault(" | ".join(of), point)
    # A process each: Keras computes with one framework in a process, and no network finds another
    # one's switches.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        made = {}
        for key, record in zip(points, pool.map(first_losses, points.values()), strict=True):
            print(key, flush=True)
            made[key] = record
        return made


def first_losses(point: profiles.Point) -> dict:
    """Return the first losses of a point, trained with the workload that its notebook's cells
    build.

    What a search chooses hangs on the clock: `tuned` is built with the reference's settings.
    """

    def choose(run, device, build, reference, **limits):
        return build, Settings()

    tuned.choose = choose
    names = {"__name__": "__main__"}
    for cell in layout.cells(layout.notebook(point.study)):
        if cell["cell_type"] == "code" and "workload" not in names:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(cell["source"], names)
            if "parameters" in cell["metadata"].get("tags", []):
                names |= nested(point.study, point.parameters)
    workload, batches = names["workload"], endless(names["workload"])
    workload.enter()
    taken = [workload.mean_loss([workload.step(next(batches))]) for _ in range(NUM_LOSSES)]
    batches.close()
    return {"losses": taken, "version": workload.device.backend.version}


def copy_runs(runs: Iterable[str], folder: Path) -> None:
    """Copy committed runs of MACHINE below a folder: a working tree may hold others, of the same
    name too."""
    committed = ROOT / "outputs" / "runs" / MACHINE
    for run in runs:
        paths = sorted(committed.glob(f"*/*/{run}.csv")) + sorted(committed.glob(f"*/*/{run}.json"))
        if not paths:
            raise FileNotFoundError(
                f"run {run} of {golden_files.FOLDER.name}/runs.json is not in {committed}"
            )
        for path in paths:
            target = folder / "runs" / path.relative_to(committed.parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def committed_runs() -> list[str]:
    """Return the runs of MACHINE that git has."""
    command = ["git", "ls-files", f"outputs/runs/{MACHINE}/*.csv"]
    return [
        Path(path).stem
        for path in subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", default="values", choices=["values", "losses"])
    parser.add_argument(
        "--into", type=Path, help="another folder; the runs are those of tests/golden/runs.json"
    )
    options = parser.parse_args()
    kept = golden_files.FOLDER / "runs.json"
    runs = golden_files.read(kept) if options.into else committed_runs()
    with tempfile.TemporaryDirectory() as outputs:
        os.environ["BENCHBOOK_OUTPUTS"] = outputs
        if options.part == "losses":
            # As in JupyterLab, where the notebook's cells build the workload in the kernel.
            os.environ |= ONE_THREAD | {"JPY_SESSION_NAME": "golden"}
            if hasattr(os, "sched_setaffinity"):  # JAX starts as many threads as there are cores
                os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            made = {f"losses-{golden_files.kind_of_cpu()}.json": losses()}
        else:
            copy_runs(runs, Path(outputs))
            made = values()
    for name, lines in made.items():
        golden_files.write(lines, (options.into or golden_files.FOLDER) / name)


if __name__ == "__main__":
    main()
