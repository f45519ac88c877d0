"""Test the parity check: its verdicts on planted faults and on right runs, and the seconds that
it takes.

Each fault is planted in a built workload, and the check must call it wrong; a fault that begins
after the check must be found in the windows that follow. Right runs differ in seed and
precision, and must pass. Networks are those of the studies, with small images and batches.
Seconds are CPU seconds of the process on all its cores.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchbook import datasets
from benchbook.datasets import shapes
from benchbook.frameworks.torch.training import TorchWorkload
from benchbook.frameworks.workload import Settings
from benchbook.judging import verdicts
from benchbook.judging.agreement import Agreement
from benchbook.measuring import parity, protocol
from benchbook.studies.gpt_tokens import plan as gpt
from benchbook.studies.mnist_speedup import plan as mnist
from benchbook.studies.mobilenetv2_energy import plan as mobilenetv2
from benchbook.studies.resnet50_cost import plan as resnet50
from benchbook.studies.simclr_epochs import plan as simclr
from made import plants
from made.fakes import CPU, run

PRECISIONS = ("fp32", "amp_bf16")


def build(study: str, seed: int = 0, precision: str = "fp32") -> TorchWorkload:
    """Return a study's workload at a small size; a part of each batch is compared with float64."""
    chosen = {"seed": seed, "settings": Settings(precision), "parity_batch_size": 8}
    resident = {"data_resident": True, "num_workers": 0}
    if study == "mnist_speedup":
        return mnist.Plan.build(
            datasets.load("digits"), CPU, "tuned", batch_size=16, **resident, **chosen
        )
    if study == "simclr_epochs":
        return simclr.Plan.build(
            shapes(8, 1, size=32, seed=seed), CPU, "tuned", batch_size=16, **chosen
        )
    if study == "mobilenetv2_energy":
        options = {"trainable": True, "image_size": 64, "batch_size": 32, "weights": "random"}
        return mobilenetv2.Plan.build(
            shapes(8, 1, size=32, seed=seed), CPU, "tuned", **options, **resident, **chosen
        )
    if study == "gpt_tokens":
        return gpt.Plan.build(gpt.Plan.find("excerpt"), CPU, "controlled", batch_size=12, **chosen)
    options = {"image_size": 64, "batch_size": 16}
    return resnet50.Plan.build(None, CPU, "tuned", **options, **chosen)


SCALER = "a scaler that hides an overflow"
OF_CONVOLUTIONS = {"untrained convolutions", "convolutions without gradients"}
SGD, LABELS, STATISTICS = (
    {"no momentum", "no weight decay"},
    {"rolled labels"},
    {"moving statistics that stay"},
)
# Each study, and the faults that its training cannot have, because it lacks the part.
STUDIES = {
    "mnist_speedup": SGD | STATISTICS,
    "simclr_epochs": LABELS,
    "mobilenetv2_energy": SGD,
    "resnet50_cost": LABELS,
    "gpt_tokens": LABELS
    | STATISTICS
    | OF_CONVOLUTIONS
    | {"no momentum", "a ReLU left out", SCALER},
}
LATER = "all but the last layer frozen after the comparison"
EVERY = plants.EVERY | plants.OF_LARGE_BATCHES | {LATER: plants.frozen_below_the_head}


def faults(study: str) -> dict[str, plants.Plant]:
    """Return the faults that are planted in a study, by name."""
    of_text = (
        {"half of each sequence of large batches": plants.half_sequences}
        if study == "gpt_tokens"
        else {}
    )
    return {name: plant for name, plant in EVERY.items() if name not in STUDIES[study]} | of_text


def check(workload: TorchWorkload, num_steps: int) -> tuple[Agreement, float]:
    """Return the check's verdict on a workload, and the CPU seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        record, begun = run(Path(folder)), time.process_time()
        verdict = parity.check(workload, record, num_steps)
    return verdict, time.process_time() - begun


def reason_later(workload: TorchWorkload, plant: plants.Plant, num_steps: int) -> str:
    """Plant a fault after the check; return why two windows are wrong, empty if they are not."""
    with tempfile.TemporaryDirectory() as folder:
        record = run(Path(folder))
        protocol.first_step(workload, record)
        parity.check(workload, record, num_steps)
        plant(workload)
        amount = protocol.Amount(
            num_windows=2, samples_per_window=workload.batch_size, evaluates=False
        )
        protocol.measure_windows(workload, record, amount)
        return verdicts.summarise(record.rows())["verdict"].item().text("wrong")


def missed_faults(study: str, num_steps: int) -> Iterator[str]:
    """Plant each fault of a study and print the verdict; yield the faults that were not caught."""
    for name, plant in faults(study).items():
        workload = build(study, precision="amp_fp16" if "scaler" in name else "fp32")
        if name == LATER:
            reason = reason_later(workload, plant, num_steps)
        else:
            plant(workload)
            verdict, _ = check(workload, num_steps)
            is_wrong = not verdict.passed and not verdict.reason.startswith("unsupported")
            reason = verdict.reason if is_wrong else ""
        print(f"  {name:52}{'wrong' if reason else 'MISSED'}: {reason[:150]}", flush=True)
        if not reason:
            yield name


def false_alarms(study: str, num_steps: int, num_runs: int) -> Iterator[str]:
    """Check right runs; yield seed, precision and reason of each that was called wrong."""
    seconds = []
    for number in range(num_runs):
        precision = PRECISIONS[number % len(PRECISIONS)]
        verdict, taken = check(build(study, number, precision), num_steps)
        seconds.append(taken)
        if not verdict.passed:
            yield f"seed {number}, {precision}: {verdict.reason}"
    print(
        f"  seconds of {num_steps} steps: {sorted(seconds)[len(seconds) // 2]:.1f} (median)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", nargs="*", default=list(STUDIES), choices=STUDIES)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--runs", type=int, default=20)
    options, failures = parser.parse_args(), 0
    for study in options.studies:
        print(f"{study}: faults", flush=True)
        missed = list(missed_faults(study, options.steps))
        print(f"{study}: {options.runs} right runs", flush=True)
        alarms = list(false_alarms(study, options.steps, options.runs))
        print("\n".join(f"  {alarm}" for alarm in alarms) or "  no false alarm")
        planted = len(faults(study))
        caught = planted - len(missed)
        print(
            f"{study}: {caught} of {planted} faults caught, {len(alarms)} of {options.runs} right runs called wrong"
        )
        failures += len(missed) + len(alarms)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
