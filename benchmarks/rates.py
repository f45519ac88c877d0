"""Compare the training rates of two checkouts: `make bench STUDIES=rates OTHER=folder`.

Each process imports both libraries, one after the other, and trains windows of both by turns (A
B B A), so that what separates processes and what drifts on the machine affect both alike. New
processes follow, in which the other library comes first. The result is this checkout's rate over
the other's.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

# Not segmentation: TensorFlow's scopes of two libraries cannot be open in turns.
STUDIES = "mnist_speedup vae_stability mobilenetv2_energy gpt_tokens simclr_epochs resnet50_cost"
WINDOW_SECONDS = 0.4
BLOCKS = 8  # of four windows, two of each checkout


def build(study: str):
    """Return the workload of a study, with batches that are ready or cheap."""
    import importlib.util

    from benchbook.frameworks import devices

    older = importlib.util.find_spec("benchbook.datasets") is None
    datasets = importlib.import_module(f"benchbook.{'studies.' if older else ''}datasets")
    plan = importlib.import_module(f"benchbook.studies.{study}.plan")
    make = getattr(plan, "build", None) or plan.Plan.build  # of older checkouts, and of this one
    device = devices.pick("cpu", "torch")
    ready = {"variant": "controlled", "data_resident": True}
    if study == "resnet50_cost":
        return make(None, device, image_size=64, batch_size=16)
    if study == "simclr_epochs":
        return make(datasets.load("shapes"), device, "tuned", batch_size=16)
    if study == "mobilenetv2_energy":
        ready |= {"variant": "tuned", "image_size": 64, "batch_size": 32, "weights": "random"}
        return make(datasets.load("shapes"), device, **ready)
    load = getattr(datasets, "load_text", datasets.load) if study == "gpt_tokens" else datasets.load
    data = load("excerpt" if study == "gpt_tokens" else "digits")
    return make(data, device, **ready)


def enter(checkout: str, modules: dict) -> None:
    """Make the imports of the library find a checkout's; `modules` are its modules loaded so
    far."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchbook"]:
        del sys.modules[name]
    sys.modules.update(modules)
    sys.path[0] = f"{checkout}/lib"


def load(study: str, checkout: str):
    """Build a study with a checkout's library; return a function that trains a window of so many
    steps."""
    enter(checkout, {})
    from benchbook.measuring.window import trainer

    train = trainer(build(study))
    train(1)
    modules = {
        name: module
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "benchbook"
    }

    def window(num_steps: int) -> dict:
        enter(checkout, modules)  # what a library imports only now must be its own
        return train(num_steps)

    return window


def compare(study: str, checkouts: list[str]) -> list[float]:
    """Return the ratio of the first checkout's rate to the second's for each block of windows by
    turns."""
    trains = [load(study, checkout) for checkout in checkouts]
    num_steps = max(1, round(WINDOW_SECONDS / min(train(2)["seconds"] / 2 for train in trains)))

    def rate(side: int) -> float:
        return trains[side](num_steps)["samples_per_second"]

    blocks = [[rate(side) for side in (0, 1, 1, 0)] for _ in range(BLOCKS)]
    return [(first + fourth) / (second + third) for first, second, third, fourth in blocks]


def main() -> None:
    """Print the ratio of each study's rates, with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout's folder")
    parser.add_argument(
        "--first", choices=("own", "other"), help="in a process that this script starts"
    )
    parser.add_argument("--processes", type=int, default=4, help="for each study")
    parser.add_argument("--studies", default=STUDIES, help="names separated by blanks")
    options = parser.parse_args()
    if not (options.other / "lib" / "benchbook").is_dir():
        parser.error(f"other {options.other}; allowed: a folder with lib/benchbook")
    checkouts = [str(Path(__file__).resolve().parents[1]), str(options.other.resolve())]
    if options.first == "own":
        print(json.dumps(compare(options.studies, checkouts)))
    elif options.first == "other":
        print(json.dumps([1 / ratio for ratio in compare(options.studies, checkouts[::-1])]))
    else:
        for study in options.studies.split():
            report(study, options)


def report(study: str, options: argparse.Namespace) -> None:
    """Compare a study's rates in new processes, in which the libraries come first by turns;
    print the ratio."""
    from benchbook.judging import intervals

    ratios, processes = [], []
    for process in range(options.processes):
        first = ("own", "other")[process % 2]
        command = [
            sys.executable,
            __file__,
            str(options.other),
            "--studies",
            study,
            "--first",
            first,
        ]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        found = json.loads(answer.splitlines()[-1])
        ratios += found
        processes += [process] * len(found)
    found = intervals.interval(ratios, processes, intervals.PAIRED)
    print(
        f"{study}: {found.value:.3f}, {found.kind} {found.low:.3f} to {found.high:.3f}", flush=True
    )


if __name__ == "__main__":
    main()
