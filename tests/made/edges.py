"""Odd rows of each study, each for a fault that was or could be made; the golden set has what is
made of them."""

import functools
import itertools
from collections.abc import Callable, Iterator

import pandas
import yaml

from benchbook.judging.verdicts import Verdict
from benchbook.record import articles
from benchbook.studies.calibrate import study as calibrate
from benchbook.studies.gpt_tokens import study as gpt
from benchbook.studies.mnist_speedup import study as mnist
from benchbook.studies.mobilenetv2_energy import study as mobilenetv2
from benchbook.studies.resnet50_cost import study as resnet50
from benchbook.studies.segmentation_scaling import study as segmentation
from benchbook.studies.simclr_epochs import study as simclr
from benchbook.studies.vae_stability import study as vae
from made.rows import make_row
from made.study_rows import calibration, evidence, matrix, point, steps, tried

NET, SIMCLR, SEGMENTATION = "mobilenetv2_energy", "simclr_epochs", "segmentation_scaling"
# What points and parts of a chip have, by the edges that use them; `ends` are those of processes.
GIVEN = yaml.safe_load("""
board: &board {energy_joules: 320.0, energy_method: nvml, energy_boundary: board}
package: {energy_joules: 640.0, energy_method: rapl, energy_boundary: package, machine: attic}
apple: {device: mps, chip: Apple M1, session: s}
epochs: [{machine: attic}, {name: resident}, {dataset: digits-28px}, {framework: mlx}]
loaders: [{machine: attic}, {device: cuda}, {dataset: digits-28px}, {batch_size: 256}]
busy: {as in the article: {}, one process: {}, another batch: {batch_size: 64}, its own way: {variant: controlled},
  a CPU: {device: cpu}}
parts: {nothing else: {}, a busy CPU: {cpu_total_mj: 50.0}, the neural engine: {ane_mj: 5.0}, several cores: {},
  a part without a counter: {ane_mj: null}, an unread process: null}
converged:
- {}
- {losses: [2.0, 1.95, 1.94]}
- {accuracy: 0.24}
- {rates: [9.0]}
- {settings: {weights: random}}
- {losses: [2.0, .nan], status: diverged}
- {dataset: pets-jpeg}
- {dataset: cifar10-jpeg}
- {rates: [9.0, 9.0]}
- {settings: {trainable: true}}
- {accuracy: 0.24, settings: {trainable: true}}
whole: {settings: {trainable: true}, device: metal, image_size: 224}
ends:
- {}
- {message: the process was ended by SIGABRT}
- {phase: compile}
- {phase: setup}
- {message: "RuntimeError: SIGSEGV"}
- {message: the process was ended by SIGKILL}
- {status: interrupted}
- {status: out_of_memory}
- {status: unavailable}
- {status: timeout}
- {framework: torch}
- {device: cpu}
- {image_size: 160}
- {variant: tuned}
larger: {framework: tensorflow, dataset: cifar10, image_size: 128, batch_size: 64, device: metal}
not simclr's: [{variant: tuned}, {dataset: shapes-32px}, {batch_size: 64}]
simclr: {device: cuda, session: s, samples: 9984000, peak_memory_bytes: 1500000000}
four: {count: 4, batch_size: 1024, device: tpu, precision: amp_bf16, dataset_samples: 1281167}
gpt: {model: nanogpt_char, dataset: tinyshakespeare, sequence_length: 256, batch_size: 64}
broken: {losses: [.nan], status: diverged, rates: [900]}
""")
BOARD, APPLE = GIVEN["board"], GIVEN["apple"]
DIED = "the process was ended by SIGSEGV; it last printed: ..."
net, autoencoder = functools.partial(point, NET), functools.partial(point, "vae_stability")
Edge = tuple[str, Callable, object]


def loader(rates, name="reference", **columns):
    """Return an MNIST point with one of the loaders."""
    variant, settings = (
        "reference" if name == "reference" else "controlled",
        {"data_resident": name == "resident"},
    )
    return point("mnist_speedup", rates, variant=variant, settings=settings, **columns)


def changed(rows, **columns):
    """Return rows with these columns changed."""
    return [row | columns for row in rows]


def of_mnist() -> Iterator[Edge]:
    runs = [loader([1000], run_id=f"run-{number}", session="two") for number in range(3)]
    for run, rate in zip(runs, (1000.0, 4000.0, 5000.0), strict=True):
        run[-1]["samples_per_second"] = rate
    runs[2][0]["seconds"] = 9.0  # one slow set-up
    several = evidence(
        loader([1], run_id="0", session="one"), *runs, loader([4000], batch_size=256)
    )
    yield "each part is the median over the runs of the last session", mnist.epochs, several
    untested = evidence(point("mnist_speedup", (1000,), test=False))
    yield "an epoch without a test", mnist.epochs, untested
    yield "an epoch without a test judges no claim", mnist.STUDY.quantities, untested
    yield (
        "other digits judge no claim",
        mnist.STUDY.quantities,
        evidence(loader([1000], dataset="digits-28px")),
    )
    failed = make_row(
        phase="setup", status="unavailable", samples_per_second=None, batch_size=None, seconds=None
    )
    yield "failed before its windows", mnist.epochs, evidence([failed])
    for change in GIVEN["epochs"]:
        both = evidence(loader([1000]), loader([4000], device="cuda", **change))
        yield f"epochs with another {[*change]}", mnist.speedups, mnist.epochs(both)
    for change in GIVEN["loaders"]:
        both = evidence(loader([1200]), loader([2500], "resident", **change))
        yield f"loaders with another {[*change]}", mnist.shares, both
    pair = [loader([1000, 1001, 999, 1000, 1002, 998], device=device) for device in ("cpu", "cuda")]
    clock = {"index": 0, "awake_seconds": 0.0, "elapsed_seconds": 0.0}
    states = [
        clock | {"run_id": run[0]["run_id"], "power_source": power}
        for run, power in zip(pair, ("battery", "mains"), strict=True)
    ]
    judged = evidence(*pair, conditions=pandas.DataFrame(states))
    yield "on battery", mnist.epochs, judged
    yield "faster than on battery", mnist.speedups, mnist.epochs(judged)
    seconds = {size: 4e-3 + 5e-5 * size for size in (64, 16, 256)}
    line = evidence(
        *(loader([size / time], "resident", batch_size=size) for size, time in seconds.items())
    )
    yield "resident steps of 4 ms and 50 us an image", mnist.step_times, line
    yield "one batch size", mnist.step_times, evidence(loader([100], "resident"))


def of_calibration() -> Iterator[Edge]:
    products = [calibration(rate) for rate in (4e9, 5e9, 6e9)] + [
        calibration(2e10, precision="bf16")
    ]
    both = evidence([*products, calibration(2e10, model="copy"), calibration(1.0, "before")])
    yield "the last calibration counts", calibrate.ceilings, both


def of_mobilenet() -> Iterator[Edge]:
    quick, whole = net((10,), point="quick", run_id="2"), net((20, 20), point="paper", run_id="1")
    dated = [
        changed(rows, started_at=f"2026-11-{day}T00:00:00Z")
        for day, rows in ((20, quick), (21, whole))
    ]
    yield "the newer counts", mobilenetv2.settings, evidence(*dated)
    failed = net((), point="failed", ended="timeout")
    yield "none that failed counts", mobilenetv2.settings, evidence(failed, quick)
    yield "crashed midway", mobilenetv2.settings, evidence(net((50,), ended="crashed"))
    runs = [
        net(losses=losses, run_id=name, session="s")
        for name, losses in (("a", (2, 1, 0.5)), ("b", (4, 4, 4)))
    ]
    yield (
        "a curve is the median of runs",
        mobilenetv2.losses,
        evidence(*runs, changed(runs[0], repeat=1)),
    )
    runs = [net(**change, machine=f"{change}") for change in GIVEN["converged"]]
    yield "converged", mobilenetv2.convergence, evidence(*runs)
    trained = net((10, 20), settings={"trainable": True}, device="metal", **BOARD)
    others = [
        net(device="metal", batch_size=32),
        changed(net(device="metal", framework="torch"), loss=2.0),
    ]
    claimed = evidence(trained, net((60,), device="metal"), *others, net())
    yield "the article's setting on an accelerator", mobilenetv2.STUDY.quantities, claimed
    stuck = {"losses": (2.1, 2.1), "device": "metal"}
    slower = net(settings={"learning_rate": 1e-4}, machine="slower", **stuck)
    yield "stuck", mobilenetv2.STUDY.quantities, evidence(net(**stuck), slower)
    both = evidence(net((10, 20), **BOARD), net((10, 20), **GIVEN["package"]))
    yield "joules of board and package", mobilenetv2.settings, both
    own = GIVEN["whole"]
    # the article's crash is a fault that ends TensorFlow while it trains on more than 196 pixels
    crashed = [net(machine="not crashed", **own)]
    for end in GIVEN["ends"]:
        last = {"message": DIED, "phase": "train"} | end
        shared = {name: last[name] for name in last.keys() - {"message", "phase", "status"}}
        rows = net((), ended="crashed", machine=f"{end}", **own)
        rows = [row | (last if row["status"] == "crashed" else {}) for row in rows]
        crashed.append(changed(rows, **shared))
    yield "crashed", mobilenetv2.STUDY.quantities, evidence(*crashed)
    died = changed(net((), ended="crashed", **own), run_id="other", message=DIED)
    some = evidence(net(**own), died, net(device="metal"), net(**stuck, batch_size=32))
    yield "an event in some processes or points", mobilenetv2.STUDY.quantities, some
    larger = evidence(point("resnet50_cost", **GIVEN["larger"]))
    yield "the larger network", resnet50.STUDY.quantities, larger
    for verdicts in (
        ["did not converge", "converged", "not judged"],
        ["converged"],
        ["not judged"],
    ):
        rates = [0.1, 0.01, 0.001][: len(verdicts)]
        judged = pandas.DataFrame({"verdict": verdicts, "learning_rate": rates})
        yield f"{verdicts} counted", mobilenetv2.convergence_sentence, judged


def of_simclr() -> Iterator[Edge]:
    claims, one = simclr.STUDY.quantities, point(SIMCLR)[3]
    for change in GIVEN["not simclr's"]:
        yield f"{change} judges no claim", claims, evidence(point(SIMCLR, **change))
    later = changed(matrix(one)[:2], run_id="z", session="z")
    yield "the last run that tried", simclr.support_matrix, evidence(matrix(one), later)
    rows = changed(matrix(one), device="mps")
    refused = [
        row | {"status": "unsupported"} if row["compiled"] or "bf16" in row["precision"] else row
        for row in rows
    ]
    half = [*rows[:2], rows[2] | {"precision": "bf16"}]
    for name, own in {
        "of the accelerator": rows,
        "refused": refused,
        "half precision": half,
        "of another study": changed(refused, study="mnist_speedup"),
        "of the CPU": changed(refused, device="cpu"),
    }.items():
        yield f"the matrix {name}", claims, evidence(own)
    runs = [
        point(SIMCLR, (900,), accuracy=0.84 + run / 100, run_id=f"run-{run}", **GIVEN["simclr"])
        for run in range(3)
    ]
    for device in ("cuda", "cpu"):
        yield (
            f"the article's epochs on {device}",
            claims,
            evidence(*(changed(run, device=device) for run in runs)),
        )
    shares = {name: (0.9, 0.94, 0.95)[: 1 + 2 * (name != "one process")] for name in GIVEN["busy"]}
    for name, change in GIVEN["busy"].items():
        runs = [point(SIMCLR, run_id=f"run-{run}", **APPLE | change) for run in range(3)]
        told = [
            tried(run[3] | {"settings": f'{{"busy": {share}}}'}, "busy", (300.0,))
            for run, share in zip(runs, shares[name], strict=False)
        ]
        yield f"a device in use, {name}", claims, evidence(*runs, *told)
    own = point(SIMCLR, (64, 60, 62), accuracy=0.25)
    yield "resident views", simclr.reading, evidence(own, tried(own[3], "resident", (75.0,)))


def of_the_others() -> Iterator[Edge]:
    runs = (
        autoencoder(),
        autoencoder(device="mps", **GIVEN["broken"]),
        autoencoder(device="cuda", dataset="digits", **GIVEN["broken"]),
    )
    yield "divergence", vae.STUDY.quantities, evidence(*runs)
    first = evidence(steps([0.0] * 31, device="mps"), steps([0.1] * 11))
    yield "first losses", vae.STUDY.quantities, first
    board = BOARD | {"device": "cuda"}
    quantities = [point(SEGMENTATION, **board, batch_size=size) for size in (16, 32)]
    yield "segmentation on a GPU", segmentation.STUDY.quantities, evidence(*quantities)
    apple = [
        point(SEGMENTATION, **APPLE | {"device": "metal", "run_id": f"run-{run}"})
        for run in range(2)
    ]
    for name, change in GIVEN["parts"].items():
        read = [{"cpu_total_mj": 3.0, "gpu_mj": 40.0, "ane_mj": 0.0}, change]
        samples = [
            {"run_id": f"run-{run}", "index": index}
            | dict.fromkeys(("awake_seconds", "elapsed_seconds"), 2.0 * index)
            | {"cpu_own_seconds": (2.0 if run and "cores" in name else 0.5) * 2 * index}
            | ({"energy_parts": read[0] | read[run]} if index and read[run] is not None else {})
            for run in range(2)
            for index in range(3)
        ]
        own = evidence(*apple, conditions=pandas.DataFrame(samples))
        yield f"Apple's GPU and {name}", segmentation.STUDY.quantities, own
    for change in ({"image_size": 128}, {"settings": {"width": 0.5}}):
        times = segmentation.image_times(evidence(point(SEGMENTATION, **change)))
        yield f"a smaller network of {change}", pandas.DataFrame, times


def gpus(batch_size=64, rates=(90.0, 100.0, 110.0), count=1, stated=None, **columns):
    """Return a ResNet-50 point on GPUs."""
    own = {"device": "cuda", "batch_size": batch_size, "device_count": count} | columns
    return point("resnet50_cost", rates, settings=stated, test=False, **own)


def accuracy_run(accuracies, joules=10.0, stated=None, **columns):
    """Return a run of epochs of 100 seconds, each with its test."""
    base = gpus(stated=stated, dataset="imagenet", **columns)[3] | {
        "run_id": "r",
        "point": "r",
        "session": "r",
    }
    energy = BOARD | {"energy_joules": joules} if joules else {}
    for epoch, accuracy in enumerate(accuracies, start=1):
        place = base | {"epoch": epoch, "index": epoch}
        yield place | {"seconds": 100.0, "loss": 1 / epoch} | energy
        yield place | {"phase": "evaluate", "accuracy": accuracy, "seconds": 7.0}


def of_resnet50() -> Iterator[Edge]:
    in_euros = articles.prices().assign(currency="EUR")
    yield (
        "a price in another currency",
        resnet50.costs,
        evidence(gpus(), published=True, prices=in_euros),
    )
    for boundary in ("board", "wall"):
        energy = {"energy_joules": 12_800.0, "energy_method": "nvml", "energy_boundary": boundary}
        windows = evidence(gpus(stated={"electricity_per_kwh": 0.3}, **energy))
        yield f"electricity at the {boundary}", resnet50.costs, windows
    curve = resnet50.curves(
        evidence([*accuracy_run([0.2, 0.6, 0.5, 0.7], stated={"price_per_hour": 36.0})])
    )
    for target in (0.6, 0.71):
        yield f"to an accuracy of {target}", functools.partial(resnet50.to_target, curve), target
    yield (
        "an accuracy without joules",
        resnet50.curves,
        evidence([*accuracy_run([0.2], joules=None)]),
    )
    own = GIVEN["four"]
    for change in ({}, {"precision": "fp32"}, {"count": 1}):
        run = accuracy_run([0.5, 0.757, 0.764], stated={"price_per_hour": 6.7}, **own | change)
        yield (
            f"four devices to an accuracy, with {change}",
            resnet50.STUDY.quantities,
            evidence([*run]),
        )

    synthetic = [
        gpus(size, count=4, precision="amp_fp16", framework="tensorflow")
        for size in (128, 256, 1024)
    ]
    yield "four GPUs", resnet50.STUDY.quantities, evidence(*synthetic)
    jump = accuracy_run([0.5] * 30 + [0.7] * 10, **own)
    yield "an accuracy that jumps when the rate falls", resnet50.STUDY.quantities, evidence([*jump])


def loss_run(losses, tested=0, **columns):
    """Return a run of 250 steps in a minute each, with a test after it on so many sequences; 0:
    on all."""
    base = {
        "study": "gpt_tokens",
        "model": "nanogpt_char_small",
        "dataset": "tinyshakespeare",
        "sequence_length": 64,
    }
    base |= {
        "run_id": f"r{tested}",
        "point": "p",
        "session": "s",
        "settings": {"num_test_sequences": tested},
    } | columns
    for epoch, loss in enumerate(losses, start=1):
        place = base | {"epoch": epoch, "index": epoch}
        yield make_row(
            **place, phase="train", steps=250, seconds=60.0, samples=3000, samples_per_second=50.0
        )
        yield make_row(**place, phase="evaluate", loss=loss, seconds=5.0, samples=tested or 1742)


def of_gpt() -> Iterator[Edge]:
    for name, runs in {
        "the first whole test": [loss_run([2.3, 1.87, 1.9, 1.8]), loss_run([1.5], tested=64)],
        "missed": [loss_run([2.3, 1.89])],
        "of another text": [loss_run([1.5], dataset="tinyshakespeare-excerpt")],
        "of nothing": [],
    }.items():
        yield (
            f"minutes to a loss: {name}",
            gpt.to_target,
            gpt.curves(evidence(itertools.chain(*runs))),
        )
    ladder = [
        "",
        *itertools.accumulate(
            ["tf32", "fused", "bf16", "fused_attention", "compiled", "padded"], "{} {}".format
        ),
    ]
    rungs = [
        point(
            "gpt_tokens", (100.0 * len(rung) + size,), variant="controlled", settings={"ladder": rung},
            precision=next((name for name in ("bf16", "tf32") if name in rung.split()), "fp32"),
            batch_size=size, device="cuda",
        )
        for size in (8, 16) for rung in ladder
    ]  # fmt: skip
    yield "the ladder", gpt.STUDY.quantities, evidence(*rungs)
    shown = point("gpt_tokens", **GIVEN["gpt"], device="cuda")
    shown[-1]["loss"] = 1.47
    yield "a loss", gpt.STUDY.quantities, evidence(shown)


def line(value=2.0, **columns):
    """Return a line of a chart's table."""
    told = {
        "machine": "desk",
        "device": "cpu",
        "source": "measured",
        "variant": "reference",
        "status": "ok",
    }
    told |= {"verdict": Verdict(), "low": 1.5, "high": 2.5, "num_windows": 6, "batch_size": 8}
    return told | {"value": value} | columns


EVERY = (
    of_mnist,
    of_calibration,
    of_mobilenet,
    of_simclr,
    of_the_others,
    of_resnet50,
    of_gpt,
)


def found() -> Iterator[tuple[str, object]]:
    """Yield what is made of each odd input: a table, lines of quantities, a sentence, or a
    value."""
    for edges in EVERY:
        for name, function, given in edges():
            yield f"{edges.__name__.removeprefix('of_')}: {name}", function(given)
