"""A loop of one's own: what is measured, what is refused, and a script in fresh processes."""

import importlib.util
import itertools
import math
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import tqdm

import benchbook
from benchbook.commands.output import SOME_FAILED
from benchbook.frameworks import batches, devices
from benchbook.loop import callbacks
from benchbook.loop import meter as loop
from benchbook.loop.rate import Rate
from benchbook.machine import contention
from benchbook.measuring.sensors import Energy, Sensor
from benchbook.measuring.window import window
from benchbook.record import chips
from made.fakes import CPU

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import loops

SCRIPT = """\
import argparse, time
import benchbook
from benchbook.loop import stretch
stretch.WARM_UP_SECONDS, stretch.STRETCH_SECONDS, stretch.STRETCH_STEPS = 0.02, 0.1, 3
parser = argparse.ArgumentParser()
parser.add_argument("--milliseconds", type=float, default=1)
wait = parser.parse_args().milliseconds / 1000
{calls}
"""
CALL = "benchbook.measure(lambda batch: time.sleep(wait), [0], samples=4)"


@pytest.fixture(autouse=True)
def now(monkeypatch, clock):
    """Return a function that lets time pass; nothing else does."""
    monkeypatch.setattr(loop, "meters", [])
    return clock.advance


@pytest.fixture
def brief(monkeypatch):
    """Let networks be small, and a stretch end after few steps."""
    import torch

    monkeypatch.setattr(loops.sizes, "width", 8)
    monkeypatch.setattr(loops.sizes, "side", 6)
    monkeypatch.setattr(loop.stretch, "STRETCH_STEPS", 8)
    monkeypatch.setattr(loop.stretch, "STRETCH_SECONDS", 8.0)
    monkeypatch.setattr(loop.stretch, "CYCLES", 2)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("name", loops.LOOPS)
def test_each_loop_of_the_benchmark_has_its_true_rate_or_is_refused(name, now, brief, capsys):
    if loops.needed(name) and importlib.util.find_spec(loops.needed(name)) is None:
        pytest.skip(f"{loops.needed(name)} is not installed")
    made = loops.LOOPS[name](now)  # each step takes a known time
    if made.refusal:
        with pytest.raises(ValueError, match=made.refusal):
            loops.run(made, most_seconds=200.0)
        return
    rate = loops.run(made, most_seconds=200.0)
    assert bool(rate.doubt) is bool(made.doubt)
    assert rate.doubt.startswith(made.doubt)
    if made.doubt:
        return
    assert rate.samples_per_second == pytest.approx(made.samples_per_unit, rel=0.03)
    assert " samples/s (range " in capsys.readouterr().out


def measure(step, batches=(0,), samples=4, **options):
    return benchbook.measure(step, batches, samples, **options)


def test_the_first_step_and_a_second_and_three_steps_do_not_count(now):
    seconds = iter([30.0, 9.0, 9.0])
    assert measure(lambda batch: now(next(seconds, 0.25))).samples_per_second == 16.0
    seconds = iter(
        [30.0, *[0.001] * 95]
    )  # checked at steps 3, 6, 12, ...: after the second is over
    steps = []
    measure(lambda batch: now(steps.append(0) or next(seconds, 0.25)))
    assert loop.meters[-1]._first == 192


def test_a_stretch_lasts_30_seconds_or_200_steps_and_most_seconds_says_that_it_cut_it(now):
    rates = {pace: measure(lambda batch, pace=pace: now(pace)) for pace in (0.01, 0.25, 1.0)}
    assert rates[0.01].seconds == pytest.approx(30, abs=1)
    assert rates[0.25].steps == 200
    assert rates[0.25].seconds == 50
    assert (rates[1.0].seconds, rates[1.0].note) == (
        60,
        "cut by most_seconds=60, before 30 s and 200 steps",
    )
    assert len(rates[0.01].windows) == 40


def test_all_samples_over_all_seconds_and_the_time_in_the_slowest_windows(now, capsys):
    numbers = iter(range(10**6))
    rate = measure(
        lambda batch: now(40.0 if next(numbers) == 100 else 0.125), samples=lambda batch: 2
    )
    assert rate.samples_per_second == 2 * rate.steps / (0.125 * (rate.steps - 1) + 40)
    said = capsys.readouterr().out
    assert said.startswith(f"{rate.samples_per_second:.4g} samples/s (range ")
    assert "% of the time in the slowest 1 of 27 windows" in said
    assert "for work that comes every n steps, pass every=n" in said
    assert "unknown device (device= names it)" in said
    assert "no energy counter" in said
    assert said.endswith("Your loop: not compared with float64.\n")


@pytest.mark.parametrize(
    ("device", "chip"),
    [
        ("NVIDIA GeForce RTX 3060 (cuda, PyTorch)", "NVIDIA GeForce RTX 3060"),
        ("2 ranks, each on Apple M1 (metal, TensorFlow)", "Apple M1"),
        ("4 x NVIDIA A100-SXM4-40GB (cuda, JAX)", "NVIDIA A100-SXM4-40GB"),
        ("AMD EPYC (cpu, PyTorch)", ""),
        ("an unknown device (device= names it)", ""),
    ],
)
def test_the_rate_of_a_gpu_names_the_command_that_compares_it(device, chip):
    said = str(Rate(8.0, 2, 1.0, ((8.0, 1.0),), None, None, None, 0.0, device))
    line = f'On another chip, as published: benchbook compare "{chip}" "RTX 4090"'
    assert (line in said) is bool(chip)
    assert chip == "" or chips.listed(chip)


def test_cycles_are_whole_ten_or_as_many_as_fit(now):
    def dear(every, units):
        numbers = iter(range(1, 10**6))
        return lambda batch: now(0.1 + (units if next(numbers) % every == 0 else 0))

    for every, units, fewest in ((10, 1.0, 10), (100, 10.0, 3)):
        rate = measure(dear(every, units), every=every)
        assert rate.samples_per_second == pytest.approx(4 * every / (0.1 * every + units))
        assert rate.steps / every == len(rate.windows) >= fewest
    with pytest.raises(
        ValueError, match="every 100: two cycles take about 80 s; allowed: most_seconds above that"
    ):
        measure(dear(100, 30.0), every=100)
    with pytest.raises(ValueError, match="every 10000: two cycles take about 2,000 s"):
        measure(dear(10_000, 0.0), every=10_000)


def test_pauses_are_left_out_with_their_joules(now, clock, monkeypatch):
    class Counter(Sensor):
        def begin(self):
            self.began = clock()

        def end(self):
            return Energy(2.0 * (clock() - self.began), "rapl", "package")

    monkeypatch.setattr(loop.sensors, "open_sensor", lambda device: Counter(least_seconds=8.4))
    meter = benchbook.Meter(4, device="cpu")
    for number in range(10**6):
        now(0.125)
        if meter.tick():
            break
        if number % 50 == 0:
            with meter.paused(), meter.paused():
                now(100.0)
    assert meter.rate().samples_per_second == 32.0
    assert meter.rate().joules_per_sample == 2.0 / 32
    meter, other = (
        benchbook.Meter(4, device="cpu", most_seconds=5.0),
        {8.4: 9.6},
    )  # of another rank's counter
    exchange = meter._ranks.exchange
    monkeypatch.setattr(meter._ranks, "exchange", lambda steps, *own, **waits: [
        (each, *filter(None, [other.get(each)])) for (each, *_) in exchange(steps, *own, **waits)
    ])  # fmt: skip
    while not meter.tick():
        now(0.125)
    assert 9.6 <= meter.rate().seconds < 11  # as long as each counter needs
    blocks = [window(CPU, Counter(), loop.devices.wait, clock) for _ in range(2)]
    with blocks[0] as outer:
        with blocks[1] as inner:
            now(1.0)
        now(1.0)
    assert (inner.seconds, inner.energy.joules) == (1.0, 2.0)
    assert (outer.seconds, outer.energy.joules, outer.peak_memory_bytes) == (2.0, None, None)


def test_waiting_for_input_is_told_from_the_step_and_the_hint_is_a_number(now):
    class Loader(list):
        num_workers = 0
        dataset = range(7)

        def __iter__(self):
            now(0.09)
            return super().__iter__()

    rate = measure(lambda batch: now(0.91), Loader([0]))
    assert rate.input_share == pytest.approx(0.09)
    assert "9% of the time is input: without it about 4.4 samples/s" in str(rate)
    assert ("try num_workers=" in str(rate)) is (devices.identity.usable_cores() > 0)
    batches = benchbook.Meter(4).inputs(Loader([0]))
    assert (len(batches), len(batches.dataset), list(batches)) == (1, 7, [0])
    meter = benchbook.Meter(4)
    while not meter.tick():
        now(0.5)
    assert meter.rate().input_share is None
    assert "input" not in str(meter.rate())


def test_nothing_that_a_step_returns_is_kept(now):
    class Output:
        pass

    alive, most = weakref.WeakSet(), []

    def step(batch):
        most.append(len(alive))
        now(1.0)
        alive.add(output := Output())
        return output

    measure(step)
    assert max(most) == 0


def test_a_disturbed_loop_says_so_first(now, monkeypatch):
    monkeypatch.setattr(contention, "shares", lambda *given: (0.3, 0.0))
    assert str(measure(lambda batch: now(1.0))).startswith(
        "Disturbed: other processes took 30% of the CPU."
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"batches": []}, "batches has no batch; allowed: one or more"),
        (
            {"batches": iter([0, 0])},
            "the loop ended in its warm-up, after step 2; allowed: more batches",
        ),
        (
            {"batches": iter([0] * 9), "every": 4},
            "the loop ended before two cycles of 4 steps did; allowed: ",
        ),
        ({"samples": 0}, "samples 0; allowed: a number above 0, or a function of a batch"),
        ({"samples": "64"}, "samples '64'; allowed: a number above 0, or a function of a batch"),
        ({"most_seconds": math.nan}, "most_seconds nan; allowed: a number above 0"),
        ({"device": "abacus"}, "device 'abacus'; allowed: cpu, .*, with an index as in cuda:1"),
        ({"device": "cuda:one"}, "device 'cuda:one'; allowed: "),
        ({"device": "cuda:1"}, "device cuda:1 is not in use by this loop; allowed: cpu"),
        (
            {"step": lambda images, labels: None},
            r"step takes \(images, labels\), not one batch; allowed: ",
        ),
        ({"step": None}, r"measure\(None, \(0,\)\); allowed: a function of a batch, and batches"),
        ({"batches": 64}, "; allowed: a function of a batch, and batches"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(call, message, now):
    with pytest.raises(ValueError, match=message) as refused:
        measure(**{"step": lambda batch: now(0.5)} | call)
    assert "\n" not in str(refused.value)


class Moved:
    """Batches of a loader, as a class of one's own brings them to a device."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def batched(loader):
    import torch

    sampler = torch.utils.data.BatchSampler(range(100), 64, drop_last=False)
    return torch.utils.data.DataLoader(loader.dataset, batch_sampler=sampler)


WRAPPERS = {
    "none": lambda loader: loader,
    "tqdm": lambda loader: tqdm.tqdm(loader, disable=True),
    "enumerate": lambda loader: [*enumerate(loader)],
    "zip": lambda loader: [*zip(loader, loader, strict=True)],
    "cycle": itertools.cycle,
    "list": list,
    "a class": Moved,
    "batch_sampler": batched,
    "dictionaries": lambda loader: [{"images": images, "labels": 0} for images, _ in loader],
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_number_of_samples_is_doubted_where_batches_vary(name, now):
    """A hundred samples are batches of 64 and 36, which take a second each."""
    import torch

    images, labels = torch.zeros(100, 2), torch.zeros(100)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(images, labels), batch_size=64
    )
    step = lambda batch: now(1.0)  # noqa: E731
    doubted = measure(step, WRAPPERS[name](loader), samples=64)
    assert doubted.doubt.startswith("batches had 36 to 64 rows, and samples is 64; ")
    assert str(doubted).startswith("Miscounted? Batches had ")
    counted = measure(step, WRAPPERS[name](loader), samples=batches.rows, every=2)
    assert (counted.samples_per_second, counted.doubt) == (50.0, "")


def test_windows_of_a_device_with_a_queue_are_as_long_as_their_work(now, monkeypatch):
    """Steps of 10 ms are queued; the device is waited for where its queue of 99 is full."""
    queued = []

    def finish(last=None):
        now(0.01 * len(queued))
        queued.clear()

    def step(batch):
        queued.append(batch)
        if len(queued) > 99:
            finish()

    monkeypatch.setattr(loop.devices, "wait", finish)
    rate = measure(step)
    assert max(rate.rates) / min(rate.rates) == pytest.approx(1)
    assert rate.samples_per_second == pytest.approx(400)


def test_a_number_that_a_librarys_callback_was_given_is_doubted_too(now):
    speed = callbacks._Speed({})
    speed._begin()
    for rows in itertools.cycle([64, 36]):
        now(1.0)
        speed._meter.look([range(3), SimpleNamespace(shape=(rows, 2))], 64)
        speed._count += 64
        if speed._tick(None):
            break
    assert speed._meter.rate().doubt.startswith("batches had 36 to 64 rows, and samples is 64; ")


@pytest.mark.parametrize("count", [None, math.nan, math.inf, -5, 0, "many"])
def test_a_count_that_is_no_number_above_0_ends_the_loop_at_its_first_step(count, now):
    steps = []
    with pytest.raises(ValueError, match=r"samples of a batch are .*; allowed: a finite number"):
        measure(steps.append, samples=lambda batch: count)
    assert len(steps) == 1


def test_steps_that_return_nothing_now_and_then_are_doubted(now):
    numbers = itertools.count()
    rate = measure(lambda batch: now(1.0) or (1.0 if next(numbers) % 4 else None))
    assert (
        rate.doubt == "15 of 60 steps returned nothing: those that gave up a batch count as trained"
    )
    assert measure(lambda batch: now(1.0)).doubt == ""


def test_a_generator_that_ends_and_a_step_that_raises_leave_what_was_measured(now, capsys):
    rate = measure(lambda batch: now(1.0), iter(range(9)))
    assert (rate.steps, rate.seconds) == (6, 6.0)
    assert rate.note == "the loop ended by itself, before 30 s and 200 steps"
    seconds = iter([1.0] * 8)
    with pytest.raises(StopIteration):
        measure(lambda batch: now(next(seconds)))
    assert "5 steps in 5.0 s" in capsys.readouterr().out.split("Your loop")[1]
    meter = benchbook.Meter(1)
    for _ in range(9):
        now(1.0)
        meter.tick()
    now(1.0)
    with pytest.raises(
        ValueError, match=r"1 s between the last step and rate\(\); allowed: calling it right after"
    ):
        meter.rate()


def test_a_device_is_named_by_what_the_step_returned_unless_an_accelerator_may_have_copied_it(
    monkeypatch,
):
    import torch

    backend = devices.backend("torch")
    monkeypatch.setattr(devices, "imported", lambda: [backend])
    assert devices.used(None, {"loss": [torch.ones(1)]}).framework == "torch"
    assert devices.used(None, 3.0) is devices.used(None, None) is None
    monkeypatch.setattr(backend, "in_use", lambda: [("cuda", 0), ("cuda", 1)])
    monkeypatch.setattr(backend, "name", lambda kind, index=0: f"GPU {index}")
    assert devices.used(None, torch.ones(1)) is None
    assert devices.used(("cuda", 1), None) == devices.Device("cuda", "GPU 1", "torch", 1)
    monkeypatch.setattr(backend, "place_of", lambda value: ("cuda", 0))
    assert devices.words(devices.used(None, 0)) == "2 x GPU 0 (cuda, PyTorch)"


def test_an_attribute_that_the_package_lacks_is_named():
    with pytest.raises(AttributeError, match="'benchbook' has no attribute 'abacus'"):
        getattr(benchbook, "aba" + "cus")


@pytest.fixture
def script(tmp_path, command):
    """Return a function that measures a script with these calls, and returns exit status and
    output."""

    def run(calls: str, *options: str):
        path = tmp_path / "train.py"
        path.write_text(SCRIPT.format(calls=calls))
        return command("measure", str(path), *options)

    return run


def test_a_script_is_measured_in_fresh_processes_with_its_arguments(script):
    calls = f"import atexit, sys\natexit.register(print, 'ended')\n{CALL}\n{CALL}\n"
    calls += "try:\n    input()\nexcept EOFError:\n    import click\n    click.command()(sys.exit).main([])"
    status, said = script(calls, "--processes", "2", "--", "--milliseconds", "5")
    assert status == 0, said
    assert said.count("Process 1 of at most 2: ") == 2
    for number, line in enumerate(said.splitlines()[-2:], 1):
        assert line.startswith(f"train.py, loop {number}: ")
        assert "; 2 processes" in line
        assert 100 < float(line.split()[3].replace(",", "")) <= 4 / 0.005


def test_a_script_may_be_a_module_of_a_package(command, tmp_path, monkeypatch):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "own.py").write_text("samples = 4")
    calls = "from .own import samples\n" + CALL.replace("samples=4", "samples=samples")
    (tmp_path / "pkg" / "train.py").write_text(SCRIPT.format(calls=calls))
    monkeypatch.chdir(tmp_path)
    status, said = command("measure", "-m", "pkg.train", "--processes", "1")
    assert (status, " samples/s (range " in said) == (0, True), said


def test_an_interrupt_of_the_command_prints_the_rate_so_far_and_promises_nothing(tmp_path):
    script = SCRIPT.replace("0.1, 3", "60, 3").format(calls=CALL.replace("[0]", "batches()"))
    begun = "def batches():\n    import itertools, pathlib\n    for number in itertools.count():\n"
    begun += "        number == 99 and pathlib.Path('begun').touch()\n        yield number\n"
    (tmp_path / "train.py").write_text(
        script.replace("import argparse", begun + "import argparse", 1)
    )
    measuring = [sys.executable, "-m", "benchbook", "measure", "train.py"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(measuring, cwd=tmp_path, **options) as process:
        while not (tmp_path / "begun").exists() and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=120)
    assert " samples/s (range " in said, errors
    assert (process.returncode, errors.strip()) == (130, "Stopped (SIGINT).")


@pytest.mark.parametrize(
    ("calls", "options", "last", "measured"),
    [
        (
            "",
            (),
            "measures no loop in its own process; allowed: a call of benchbook.measure there",
            0,
        ),
        (CALL, ("--", "--epochs", "1"), "unrecognized arguments: --epochs 1", 0),
        ("raise OSError('no data here')", (), "OSError: no data here", 0),
        (f"{CALL}\nraise SystemExit('no space left')", (), "no space left", 1),
        (f"{CALL}\nraise SystemExit(3)", (), "exit status 3", 1),
        (f"{CALL}\nimport os\nos._exit(0)", (), "ended with exit status 0", 0),
        (
            "benchbook.measure(lambda batch: None, iter([0]), 4)",
            (),
            "the loop ended in its warm-up, after step 1",
            0,
        ),
    ],
)
def test_a_script_that_does_not_end_well_says_why_after_what_was_measured(
    script, calls, options, last, measured
):
    status, said = script(calls, *options)
    lines = [
        line for line in said.strip().splitlines() if line.startswith("Process 1 of at most 6: ")
    ]
    assert status == SOME_FAILED
    assert sum(" samples/s " in line for line in lines) == measured
    assert last in lines[-1]


def test_only_a_script_has_arguments_and_it_must_be_there(command, tmp_path):
    assert (
        "allowed: arguments of a script"
        in command("measure", "torchvision.models:resnet18", "--", "--x")[1]
    )
    assert "is not a file; allowed: a Python file" in command("measure", str(tmp_path / "no.py"))[1]


def test_a_script_that_is_not_measured_by_a_command_prints_its_rate_all_the_same(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(calls=CALL))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert " samples/s (range " in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "plain"])
def test_two_ranks_print_the_jobs_rate_once_and_unequal_steps_are_refused(kind, tmp_path):
    brief = 0.05, 1.5, 10
    said = loops.run_ranks(tmp_path, *brief, kind, 999, 999)
    assert said.count(" samples/s (range ") == 1, said
    assert float(said.split("RATIO ")[1].split()[0]) == pytest.approx(1, rel=0.03)
    assert "2 ranks, each on " in said
    assert "OWN 2" in said
    if kind == "plain":
        said = loops.run_ranks(tmp_path, *brief, kind, 8, 999)
        assert "steps; allowed: as many in each" in said
        assert " samples/s " not in said
