"""Test the parity check: its verdicts on planted faults and on right runs, and the seconds that it takes.

Each fault is planted in a built workload, and the check must call it wrong. Right runs differ in seed and precision,
and the check must pass them. Networks are those of the studies, with small images and batches. Seconds are CPU seconds
of the process on all its cores.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import plants
from benchbook.frameworks.torch.training import TorchWorkload
from benchbook.frameworks.workload import Settings
from benchbook.judging.agreement import Agreement
from benchbook.measuring import parity
from benchbook.studies import datasets
from benchbook.studies.datasets import shapes
from benchbook.studies.mnist_speedup import plan as mnist
from benchbook.studies.mobilenetv2_energy import plan as mobilenetv2
from benchbook.studies.resnet50_cost import plan as resnet50
from benchbook.studies.simclr_epochs import plan as simclr
from fakes import CPU, run

PRECISIONS = ("fp32", "amp_bf16")


def build(study: str, seed: int = 0, precision: str = "fp32") -> TorchWorkload:
    """Return a study's workload at a small size."""
    chosen = {"seed": seed, "settings": Settings(precision)}
    resident = {"data_resident": True, "num_workers": 0}
    if study == "mnist_speedup":
        return mnist.Plan.build(datasets.load("digits"), CPU, "tuned", batch_size=16, **resident, **chosen)
    if study == "simclr_epochs":
        return simclr.Plan.build(shapes(8, 1, size=32, seed=seed), CPU, "tuned", batch_size=16, **chosen)
    if study == "mobilenetv2_energy":
        options = {"trainable": True, "image_size": 64, "batch_size": 16, "weights": "random"}
        return mobilenetv2.Plan.build(shapes(8, 1, size=32, seed=seed), CPU, "tuned", **options, **resident, **chosen)
    options = {"image_size": 64, "batch_size": 8, "parity_batch_size": 8}
    return resnet50.Plan.build(None, CPU, "tuned", **options, **chosen)


SGD, LABELS, STATISTICS = {"no momentum", "no weight decay"}, {"rolled labels"}, {"moving statistics that stay"}
# Each study, and the faults that its training cannot have, because it lacks the part.
STUDIES = {
    "mnist_speedup": SGD | STATISTICS,
    "simclr_epochs": LABELS,
    "mobilenetv2_energy": SGD,
    "resnet50_cost": LABELS,
}


def faults(study: str) -> list[str]:
    """Return the names of the faults that are planted in a study."""
    return [name for name in plants.EVERY if name not in STUDIES[study]]


def check(workload: TorchWorkload, num_steps: int) -> tuple[Agreement, float]:
    """Return the check's verdict on a workload, and the CPU seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        record, begun = run(Path(folder)), time.process_time()
        verdict = parity.check(workload, record, num_steps)
    return verdict, time.process_time() - begun


def missed_faults(study: str, num_steps: int) -> Iterator[str]:
    """Plant each fault of a study and print the verdict; yield the faults that were not caught."""
    for name in faults(study):
        workload = build(study, precision="amp_fp16" if "scaler" in name else "fp32")
        plants.EVERY[name](workload)
        verdict, _ = check(workload, num_steps)
        print(f"  {name:34}{'MISSED' if verdict.passed else 'wrong'}: {verdict.reason[:150]}", flush=True)
        if verdict.passed:
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
    print(f"  seconds of {num_steps} steps: {sorted(seconds)[len(seconds) // 2]:.1f} (median)", flush=True)


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
        print(f"{study}: {caught} of {planted} faults caught, {len(alarms)} of {options.runs} right runs called wrong")
        failures += len(missed) + len(alarms)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
