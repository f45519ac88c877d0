"""Compare the training rates of two checkouts: `make bench STUDIES=rates OTHER=folder`.

For each study two processes live at the same time, one for each checkout, in the same environment. They train windows
by turns (A B B A), so that a drift of the machine's speed affects both alike. A pair of new processes follows, because
processes of the same code differ. The result is this checkout's rate over the other's.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchbook.judging import intervals

STUDIES = "mnist_speedup vae_stability mobilenetv2_energy gpt_tokens simclr_epochs resnet50_cost segmentation_scaling"
WINDOW_SECONDS = 0.4
TENSORFLOW = ("segmentation_scaling",)
BLOCKS = 4  # of four windows, two of each process


def build(study: str):
    """Return the workload of a study, with batches that are ready or cheap."""
    import importlib

    from benchbook.frameworks import devices
    from benchbook.studies import datasets

    make = importlib.import_module(f"benchbook.studies.{study}.plan").build
    device = devices.pick("cpu", "tensorflow" if study in TENSORFLOW else "torch")
    ready = {"variant": "controlled", "data_resident": True}
    resident = ready | {"variant": "tuned"}  # of studies without `controlled`
    if study == "resnet50_cost":
        return make(None, device, image_size=64, batch_size=16)
    if study == "simclr_epochs":
        return make(datasets.load("shapes"), device, "tuned", batch_size=16)
    if study == "segmentation_scaling":
        return make(datasets.triangles(24, 2, 128), device, batch_size=1, **resident)
    if study == "mobilenetv2_energy":
        return make(datasets.load("shapes"), device, image_size=64, batch_size=32, weights="random", **resident)
    data = datasets.load_text("excerpt") if study == "gpt_tokens" else datasets.load("digits")
    return make(data, device, **ready)


def serve(study: str) -> None:
    """Train a window of as many steps as a line of the standard input says, for each line, and print its rate."""
    from benchbook.measuring.window import trainer

    answers, sys.stdout = sys.stdout, sys.stderr
    train = trainer(build(study))
    train(1)
    seconds = train(2)["seconds"] / 2
    print(seconds, file=answers, flush=True)
    for num_steps in sys.stdin:
        print(train(int(num_steps))["samples_per_second"], file=answers, flush=True)


def start(study: str, checkout: Path) -> tuple[subprocess.Popen, float]:
    """Start a process that serves a checkout's windows; return it and the seconds of its step when it is ready."""
    command, pipe = [sys.executable, __file__, "--serve", study], subprocess.PIPE
    environment = os.environ | {"PYTHONPATH": str(checkout / "lib")}
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment)
    answer = process.stdout.readline().strip()
    if not answer:
        raise RuntimeError(f"{study} of {checkout}: its process ended before the first window")
    return process, float(answer)


def rate(process: subprocess.Popen, num_steps: int) -> float:
    """Return the rate of one more window of a process."""
    process.stdin.write(f"{num_steps}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    """Print the ratio of each study's rates, with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, nargs="?", help="the other checkout's folder")
    parser.add_argument("--serve", help="for the processes that this script starts")
    parser.add_argument("--pairs", type=int, default=4, help="of processes for each study")
    parser.add_argument("--studies", default=STUDIES, help="names separated by blanks")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if options.other is None or not (options.other / "lib" / "benchbook").is_dir():
        parser.error(f"other {options.other}; allowed: a folder with lib/benchbook")
    own = Path(__file__).resolve().parents[1]
    for study in options.studies.split():
        ratios, pairs = [], []
        for pair in range(options.pairs):
            started = [start(study, checkout) for checkout in (own, options.other.resolve())]
            processes, seconds = zip(*started, strict=True)
            num_steps = max(1, round(WINDOW_SECONDS / min(seconds)))
            for _ in range(BLOCKS):
                first, second, third, fourth = (rate(processes[side], num_steps) for side in (0, 1, 1, 0))
                ratios.append((first + fourth) / (second + third))
                pairs.append(pair)
            for process in processes:
                process.stdin.close()
                process.wait()
        found = intervals.interval(ratios, pairs, intervals.PAIRED_DEVIATION)
        print(f"{study}: {found.value:.3f}, {found.kind} {found.low:.3f} to {found.high:.3f}", flush=True)


if __name__ == "__main__":
    main()
