import hashlib
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from dataclasses import asdict
from types import SimpleNamespace

import psutil
import pytest
import yaml

from benchbook.frameworks import devices
from benchbook.machine import identity, layout, nvidia, sessions
from made.runs import LATER, START, a_run, send


@pytest.fixture(autouse=True)
def _no_name_in_the_environment(monkeypatch):
    monkeypatch.delenv("BENCHBOOK_MACHINE", raising=False)


# Chip, cores, GiB, GPUs, devices of Google's on the PCI bus (0042 is no TPU), and the name.
NAMES = """
Apple M1 Pro | 10 | 16 | | | apple-m1-pro-10core-16gb
Intel(R) Core(TM) i7-8700K CPU @ 3.70GHz | 6 | 31.2 | | | intel-core-i7-8700k-6core-31gb
AMD EPYC 7763 Processor | 64 | 503.6 | | | amd-epyc-7763-64core-504gb
| 2 | 0.4 | | | 2core-1gb
Apple processor | 8 | 16 | | | apple-8core-16gb
Чип № 5 | 4 | 8 | | | 5-4core-8gb
Intel(R) Xeon(R) CPU @ 2.00GHz | 2 | 12.7 | Tesla T4 | | intel-xeon-2core-13gb-tesla-t4
Xeon | 2 | 12.7 | NVIDIA H100 80GB HBM3, NVIDIA H100 80GB HBM3 | | xeon-2core-13gb-2x-nvidia-h100-80gb-hbm3
Xeon | 2 | 12.7 | | 0063, 0042 | xeon-2core-13gb-tpu-v5e
Xeon | 2 | 12.7 | | 0027 | xeon-2core-13gb-tpu-v2-or-v3
"""  # "Apple processor", in a virtual machine: https://github.com/archspec/archspec/issues/38
# with room for the digits of its kind
LONG = f"{'Chip ' * 30} | 8 | 16 | | | {('chip-' * 30)[:123].strip('-')}"


@pytest.mark.parametrize("line", [*NAMES.strip().splitlines(), LONG])
def test_default_name_is_chip_cores_memory_and_accelerators(monkeypatch, tmp_path, line):
    chip, cores, gibibytes, gpus, cards, name = map(str.strip, line.split("|"))
    monkeypatch.setattr(identity, "processor", lambda: chip)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: int(cores))
    monkeypatch.setattr(
        psutil, "virtual_memory", lambda: SimpleNamespace(total=int(float(gibibytes) * 2**30))
    )
    monkeypatch.setattr(nvidia, "kinds", list)
    monkeypatch.setattr(identity, "PCI", tmp_path)
    none = identity.fingerprint()
    for card in filter(None, cards.split(", ")):
        (tmp_path / card).mkdir()
        (tmp_path / card / "modalias").write_text(f"pci:v00001AE0d0000{card}sv\n")
    monkeypatch.setattr(
        nvidia, "kinds", lambda: [(gpu, 2**34) for gpu in filter(None, gpus.split(", "))]
    )
    this = identity.identify()
    assert this.name == name
    assert (this.fingerprint != none) == bool(this.accelerators) == bool(gpus or cards)


def test_name_is_the_argument_then_the_environment_and_a_machine_survives_json(monkeypatch):
    monkeypatch.setenv("BENCHBOOK_MACHINE", "desk.2")
    this = identity.identify("lap_top")
    assert (this.name, identity.identify().name) == ("lap_top", "desk.2")
    assert identity.Machine(**json.loads(json.dumps(asdict(this)))) == this


def test_a_command_that_is_missing_or_fails_prints_nothing():
    assert identity.output("no-such-command-anywhere") == ""
    assert identity.output("ls", "no-such-file-anywhere") == ""


def test_apple_silicon_is_its_own_accelerator(monkeypatch):
    told = {"machdep.cpu.brand_string": "Apple M2", "kern.osversion": "25B78"}
    told["kern.osproductversion"] = "26.1"
    monkeypatch.setattr(identity, "output", lambda *command: told.get(command[-1], ""))
    monkeypatch.setattr(nvidia, "kinds", list)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("16.0", ("", "", ""), "arm64"))
    this = identity.identify()
    assert (this.chip, this.accelerators, this.system) == (
        "Apple M2",
        ["Apple M2"],
        "macOS 26.1 (25B78)",
    )


@pytest.mark.parametrize(
    ("system", "release", "printed", "expected"),
    yaml.safe_load("""
- [Linux, "6.8.0-49-generic", none, ""]
- [Linux, "6.8.0-49-generic", kvm, ""]  # it counts stolen time
- [Linux, "6.8.0-49-generic", microsoft, Hyper-V]
- [Linux, "6.8.0-49-generic", vmware, VMware]
- [Linux, "6.8.0-49-generic", "", ""]  # without systemd, or in an error
- [Linux, "5.15.153.1-microsoft-standard-WSL2", "", WSL]
- [Darwin, "25.1.0", "1", Apple's]
- [Darwin, "25.1.0", "0", ""]
- [Darwin, "25.1.0", "", ""]
"""),
)
def test_a_hypervisor_that_hides_its_hosts_load_is_named(
    monkeypatch, system, release, printed, expected
):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "release", lambda: release)
    monkeypatch.setattr(identity, "output", lambda *command: printed)
    assert identity.hypervisor() == expected


def test_environment_names_packages_and_the_hash_of_the_lock(monkeypatch, tmp_path):
    lock = tmp_path / "cuda.txt"
    lock.write_text("numpy==2.0\n")
    monkeypatch.setattr(layout, "lock", lambda: lock)
    environment, digest = identity.environment(), hashlib.sha256(lock.read_bytes()).hexdigest()
    found = [environment[name] for name in ("lock", "lock_sha256", "python")]
    assert found == ["cuda.txt", digest, platform.python_version()]
    (tmp_path / "broken-1.0.dist-info").mkdir()  # what a broken installation leaves is passed over
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(layout, "lock", lambda: None)
    environment = identity.environment()
    assert environment["packages"]["psutil"] == psutil.__version__
    assert (environment["lock"], environment["lock_sha256"]) == (None, None)


def test_commit_says_when_the_library_was_changed(monkeypatch):
    answers = {"rev-parse": "0123456789ab", "status": ""}
    monkeypatch.setattr(identity, "output", lambda *command: answers[command[3]])
    assert identity.commit() == "0123456789ab"
    answers["status"] = " M lib/benchbook/measure.py"
    assert identity.commit() == "0123456789ab+changed"


def test_the_commit_of_a_repository_that_git_refuses_is_unknown_with_its_words(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(layout, "checkout", lambda: tmp_path)
    assert (identity.commit(), identity.git_fault()) == ("", "")
    (tmp_path / ".git").mkdir()
    assert identity.commit() == "unknown"
    assert identity.git_fault().startswith("fatal: not a git repository")


def test_a_copy_inside_another_repository_has_no_commit(monkeypatch, tmp_path):
    inner = tmp_path / "downloads" / "benchbook"
    (inner / "notebooks").mkdir(parents=True)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "Of another project"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(layout, "checkout", lambda: inner)
    assert (identity.commit(), identity.git_fault()) == ("", "")
    monkeypatch.setattr(layout, "checkout", lambda: tmp_path)
    assert re.fullmatch("[0-9a-f]{12}", identity.commit())


def test_usable_cores_are_those_this_process_may_use(monkeypatch):
    monkeypatch.setattr(identity.os, "sched_getaffinity", lambda process: {0, 5, 6}, raising=False)
    assert identity.usable_cores() == 3
    monkeypatch.delattr(identity.os, "sched_getaffinity")
    assert identity.usable_cores() == identity.os.cpu_count()


DESCRIBE = """
import json
from benchbook.machine import identity
this = identity.identify("desk")
threads = identity.environment()["variables"].get("OMP_NUM_THREADS")
print(json.dumps([this.fingerprint, this.usable_cores, threads, this.name]))
"""


@pytest.mark.skipif(len(identity.cores()) < 2, reason="needs two cores")
def test_a_machine_with_other_usable_cores_or_threads_is_another_machine(
    outputs, monkeypatch, command
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def describe(environment: dict, taskset: bool = False) -> list:
        pin = (lambda: os.sched_setaffinity(0, {min(identity.cores())})) if taskset else None
        options = {"env": os.environ | environment, "preexec_fn": pin, "text": True}
        done = subprocess.run([sys.executable, "-c", DESCRIBE], capture_output=True, **options)
        return json.loads(done.stdout)

    whole, one_core, one_thread = (
        describe({}),
        describe({}, True),
        describe({"OMP_NUM_THREADS": "1"}),
    )
    assert [each[1:3] for each in (whole, one_core, one_thread)] == [
        [whole[1], None],
        [1, None],
        [whole[1], "1"],
    ]
    assert whole[1] == len(identity.cores())
    assert len({whole[0], one_core[0], one_thread[0]}) == 3
    for session, start, (fingerprint, cores, *_) in (("s1", START, whole), ("s2", LATER, one_core)):
        known = {"fingerprint": fingerprint, "usable_cores": cores}
        send([a_run(session=session, start=start, known=known, num_threads=2)])
        if session == "s1":  # never under the first's name
            assert describe({}, taskset=True)[3] == f"desk-{one_core[0][:4]}"
    said = command("compare", "s1", "s2")[1]
    assert (
        f"Computed: A on {whole[1]} usable cores with 2 threads, B on 1 usable cores with 2 threads."
        in said
    )


CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
stepping\t: 1
flags\t\t: fpu sse2 avx2 {}hypervisor

processor\t: 1
"""


def test_a_fingerprint_tells_kinds_of_computer_apart_and_not_two_of_a_kind(tmp_path, monkeypatch):
    def traits(sets: str) -> dict:
        (tmp_path / "cpuinfo").write_text(CPUINFO.format(sets))
        return identity._linux_traits(tmp_path / "cpuinfo", tmp_path)

    assert traits("") == traits("tsc_known_freq ") != traits("avx512_bf16 ")
    assert traits("")["cpu family"] == "25"
    own = identity.fingerprint()
    assert identity.fingerprint() == own
    assert re.fullmatch("[0-9a-f]{12}", own)
    monkeypatch.setattr(nvidia, "kinds", lambda: [("NVIDIA A", 2**34)])
    with_gpu = identity.fingerprint()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=3 * 2**30))
    assert len({own, with_gpu, identity.fingerprint()}) == 3


@pytest.mark.parametrize(("kind", "is_taken"), [("own", False), ("of another", True), (None, True)])
def test_rows_of_another_or_an_unknown_kind_of_computer_keep_their_name(outputs, kind, is_taken):
    name, own = identity.identify().name, identity.fingerprint()
    folder = layout.runs(name) / "mnist_speedup" / "a-point"
    folder.mkdir(parents=True)
    manifest = {
        "machine": {"name": name}
        | ({"fingerprint": own if kind == "own" else kind} if kind else {})
    }
    (folder / "20260101T000000Z-aa.json").write_text(json.dumps(manifest))
    assert (
        identity.identify().name
        == identity.identify(name).name
        == (f"{name}-{own[:4]}" if is_taken else name)
    )
    assert identity.identify("a-name-of-its-own").name == "a-name-of-its-own"


# Implementer and part, the board, what lscpu prints, and the chip.
ARM = r"""
- [0x41 0xd4f, "", "Vendor ID: ARM\n  Model name: Neoverse-V2\n", Neoverse-V2]
- [0x41 0xd87, "", "  Model name:    Cortex-X925\n    BIOS Model name: GB10\n  Model name:    Cortex-A725\n",
    Cortex-X925 + Cortex-A725]
- [0x41 0xd99, "", "Model name: -\n", ARM 0x41 0xd99]  # too new for lscpu
- [0x61 0x000, "linux,dummy-virt\0", "", ARM 0x61 0x000]
- [0x41 0xd42, "Jetson AGX Orin\0", "Model name: Cortex-A78AE\n", Jetson AGX Orin]
- ["", "", "Model name: another\n", AMD EPYC]
# https://github.com/ad-oliviero/uwufetch/issues/215 (Linux on an M1)
- [0x61 0x022, "", "Model name: Icestorm-M1\nModel name: Firestorm-M1\n", Icestorm-M1 + Firestorm-M1]
- [0x61 0x022, "", "", ARM 0x61 0x022]
"""


@pytest.mark.parametrize(("ids", "board", "printed", "chip"), yaml.safe_load(ARM))
def test_an_arm_chip_is_named_after_its_board_or_its_cores(
    monkeypatch, tmp_path, ids, board, printed, chip
):
    told = (
        "CPU implementer\t: {}\nCPU part\t: {}".format(*ids.split())
        if ids
        else "model name\t: AMD EPYC"
    )
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{told}\n\nprocessor\t: 1\n")
    monkeypatch.setattr(identity, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(identity, "DEVICE_TREE", tmp_path / "model")
    if board:
        (tmp_path / "model").write_text(board)
    monkeypatch.setattr(identity, "output", lambda *command: printed)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    assert identity.processor() == chip


def test_sessions_are_the_readers_on_computers_of_the_kind_that_measured_them(outputs, monkeypatch):
    for session in ("s1", "s1", "s2"):
        sessions.remember(session)
    assert sessions.own() == {"s1", "s2"}
    assert len(layout.sessions().read_text().split()) == 2
    with layout.sessions().open("a") as file:
        file.write("s3,torn")  # by a power cut
    sessions.remember("s4")
    assert sessions.own() == {"s1", "s2", "s4"}
    monkeypatch.setattr(identity, "fingerprint", lambda: "bbbb22223333")  # a copied checkout
    assert sessions.own() == set()


@pytest.mark.parametrize("is_checkout", [True, False])
@pytest.mark.parametrize(
    ("missing", "asked", "said", "packages"),
    yaml.safe_load("""
- [[], [plan], "no framework is installed; allowed: PyTorch,", torch torchvision]
- [[], [measure, "a:b"], "networks train in PyTorch, missing here", torch torchvision]
- [[papermill], [plan], "notebooks run in papermill, missing", papermill]
- [[papermill, ipykernel], [report], "papermill, ipykernel", papermill ipykernel]
"""),
)
def test_what_is_not_installed_is_named_with_the_command_that_installs_it(
    is_checkout, missing, asked, said, packages, command, monkeypatch
):
    monkeypatch.setattr(devices, "installed", lambda: ("torch",) if missing else ())
    is_there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else is_there(name)
    )
    folder = layout.checkout() if is_checkout else None
    monkeypatch.setattr(layout, "checkout", lambda: folder)
    status, printed = command(*asked)
    hint = "make setup" if is_checkout else f"python -m pip install {packages}"
    assert status == 2
    assert said in printed
    assert f"`{hint}`" in printed
