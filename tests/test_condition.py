"""The machine's condition: parsers on what the tools print, and sysfs trees made of files."""

import json
import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pynvml
import pytest
import yaml

from benchbook.machine import awake, condition, nvidia
from benchbook.rows import manifests
from made.fakes import run

# As the tools of real machines print it, cut to what is read.
# https://github.com/AppHouseKitchen/AlDente-Battery_Care_and_Monitoring/issues/603 (Apple silicon),
# and https://github.com/alfredapp/low-power-mode-workflow/issues/6 (M1 Max, macOS 14)
LOW_POWER = [" tcpkeepalive         1\n lowpowermode         {}\n womp                 1\n"]
LOW_POWER += [" Sleep On Power Button 1\n powermode            {}\n ttyskeepawake        1\n"]
# https://github.com/imwally/battstat/issues/2 (macOS 10.11) and
# https://github.com/liquidprompt/liquidprompt/pull/317 (iMac)
BATTERY = "Now drawing from 'Battery Power'\n -InternalBattery-0 (id=4522083)\t90%; discharging; (no estimate)\n"
MAINS = "Now drawing from 'AC Power'\n -InternalBattery-0 \t88%; AC attached; not charging present: true\n"
DESKTOP = "Now drawing from 'AC Power'\n"
# https://github.com/wazuh/wazuh/issues/22113 and https://github.com/mackerelio/go-osstat/pull/29
# (M1 Mac mini)
VM_STAT = """Mach Virtual Memory Statistics: (page size of {} bytes)
Pageins:                                9182736.
Pageouts:                                     0.
Swapins:                                     12.
Swapouts:                                   300.
"""


# https://github.com/mingrath/mbcheck/blob/main/research/shop-readable-health-facts.md (M4 Air,
# macOS 26.5)
LEVEL = "com.apple.system.thermalpressurelevel {}"
PRINTED = [
    *(("low_power_mode", text.format(n), n == 1) for text in LOW_POWER for n in (0, 1, 2)),
    ("low_power_mode", " ttyskeepawake 1\n", None),
    *(
        ("power_source", text, source)
        for text, source in ((MAINS, "mains"), (DESKTOP, "mains"), ("", None))
    ),
    *(("power_source", text, "battery") for text in (BATTERY, "Now drawing from 'UPS Power'\n")),
    *(("thermal_pressure", LEVEL.format(n), word) for n, word in enumerate(condition.PRESSURES)),
    *(("thermal_pressure", text, None) for text in (LEVEL.format(50), "")),
    *(
        ("translated", text, value)
        for text, value in (("1\n", True), ("0", False), ("unknown oid", None))
    ),
]


@pytest.mark.parametrize(("name", "printed", "expected"), PRINTED)
def test_what_a_tool_prints_is_read_or_missing(name, printed, expected):
    assert condition.parse(name, printed) == expected


def test_swapped_bytes_are_pages_times_their_size_and_files_read_do_not_count():
    for page in (4096, 16384):
        values = condition.parse_swap(VM_STAT.format(page))
        assert values == {"swapped_in_bytes": 12 * page, "swapped_out_bytes": 300 * page}
    page = os.sysconf("SC_PAGESIZE")
    linux = "pgpgin 999\npswpin 3\npswpout 4\npgfault 5\n"
    assert condition.parse_swap(linux) == {
        "swapped_in_bytes": 3 * page,
        "swapped_out_bytes": 4 * page,
    }
    assert condition.parse_swap("") == {"swapped_in_bytes": None, "swapped_out_bytes": None}


def test_sleep_is_what_one_clock_missed():
    before = {"awake_seconds": 10.0, "elapsed_seconds": 500.0}
    for ran, passed, slept in ((40.0, 530.0, 0), (40.0, 4130.0, 3600), (40.001, 530.0, 0)):
        assert (
            condition.seconds_asleep(before, {"awake_seconds": ran, "elapsed_seconds": passed})
            == slept
        )
    still, going = condition.clocks()
    assert going >= still - 1


def tree(folder, **files):
    """Write files of sysfs; two underscores stand for a slash."""
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return folder


def test_linux_power_is_battery_only_while_it_discharges_without_mains(tmp_path):
    laptop = tree(
        tmp_path,
        class__power_supply__AC__type="Mains",
        class__power_supply__AC__online=0,
        class__power_supply__BAT0__type="Battery",
        class__power_supply__BAT0__status="Discharging",
    )
    mouse = {"type": "Battery", "scope": "Device", "status": "Discharging"}  # is not the computer's
    tree(laptop, **{f"class__power_supply__mouse__{name}": text for name, text in mouse.items()})
    assert condition.linux_power(laptop) == "battery"
    tree(laptop, class__power_supply__AC__online=1)
    assert condition.linux_power(laptop) == "mains"


def test_linux_tells_throttling_as_the_sum_of_counters_and_the_power_profile(tmp_path):
    computer = tree(
        tmp_path,
        devices__system__cpu__cpu0__thermal_throttle__core_throttle_count=2,
        devices__system__cpu__cpu1__thermal_throttle__package_throttle_count=3,
        devices__system__cpu__cpu1__thermal_throttle__package_throttle_total_time_ms=250,
        firmware__acpi__platform_profile="low-power",
    )
    expected = {"cpu_throttle_count": 5, "cpu_throttle_seconds": 0.25, "low_power_mode": True}
    assert expected.items() <= condition.linux(computer).items()
    assert set(condition.linux(tmp_path / "nothing").values()) == {None}


def test_mac_condition_is_made_of_what_its_tools_print(monkeypatch):
    printed = {
        ("pmset", "-g"): LOW_POWER[0].format(1),
        ("pmset", "-g", "batt"): BATTERY,
        ("sysctl", "-n", "sysctl.proc_translated"): "1",
        (
            "notifyutil",
            "-g",
            "com.apple.system.thermalpressurelevel",
        ): "com.apple.system.thermalpressurelevel 2",
    }
    monkeypatch.setattr(condition, "output", lambda *command: printed.get(command, ""))
    expected = {
        "low_power_mode": True,
        "translated": True,
        "power_source": "battery",
        "thermal_pressure": "heavy",
    }
    assert condition.mac() == expected


def test_a_sample_is_a_small_part_of_the_condition_without_what_is_unknown():
    sample = condition.sample()
    assert None not in sample.values()
    assert len(json.dumps(sample)) < 600
    assert set(sample) <= set(condition.read())


def refusing(number):
    def refuse(*_):
        raise pynvml.NVMLError(number)

    return refuse


def answer(monkeypatch, refused: int, **answers):
    """Let NVML count two GPUs and answer so, with a value or a function; what is not named is
    refused with a number."""
    for name in dir(pynvml):
        if name.startswith(("nvmlDeviceGet", "nvmlSystemGet")):
            monkeypatch.setattr(pynvml, name, refusing(refused))
    for name, value in ({"Init": None, "Shutdown": None, "DeviceGetCount": 2} | answers).items():
        monkeypatch.setattr(
            pynvml, f"nvml{name}", value if callable(value) else lambda *_, value=value: value
        )


def used(**values) -> pynvml.c_nvmlProcessUtilizationSample_t:
    """Return NVML's own sample of a process that used a GPU."""
    return pynvml.c_nvmlProcessUtilizationSample_t(**values)


OUTSIDE = 2**22 + 7  # an id from outside this container
ONE_OF_US = os.getpid()
SHARES = {
    "another computes": ([used(pid=ONE_OF_US, smUtil=60), used(pid=1, smUtil=40)], 0.4),
    "another one holds memory alone": ([used(pid=ONE_OF_US, smUtil=60)], 0.0),
    "several": ([used(pid=1, smUtil=70), used(pid=2, smUtil=70)], 1.0),
    "ids of the host": ([used(pid=OUTSIDE, smUtil=60)], None),
    "nobody computes": (pynvml.NVML_ERROR_NOT_FOUND, 0.0),
    "a GPU before Maxwell": (pynvml.NVML_ERROR_NOT_SUPPORTED, None),
    "not for this user": (pynvml.NVML_ERROR_NO_PERMISSION, None),
}


@pytest.mark.parametrize(("told", "share"), SHARES.values(), ids=SHARES)
def test_a_neighbour_is_work_on_the_gpu_and_not_a_process(monkeypatch, told, share):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    refused = told if isinstance(told, int) else pynvml.NVML_ERROR_NOT_SUPPORTED
    answers = {} if isinstance(told, int) else {"DeviceGetProcessUtilization": told}
    monkeypatch.setattr(psutil, "pid_exists", lambda number: number < OUTSIDE)
    answer(monkeypatch, refused, DeviceGetHandleByIndex=lambda index: index, **answers)
    assert nvidia.states()[0]["others_share"] == share


def test_gpus_tell_what_they_can_and_count_others_without_naming_them(monkeypatch):
    other = SimpleNamespace(pid=psutil.Process().ppid(), usedGpuMemory=1)
    rank = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    )  # another one of this run's
    own = [SimpleNamespace(pid=process.pid) for process in (psutil.Process(), rank)]
    slowed = {pynvml.NVML_PERF_POLICY_THERMAL: 2_500_000_000}
    answer(
        monkeypatch,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        DeviceGetHandleByIndex=lambda index: index,
        DeviceGetName=lambda handle: f"GPU {handle}",
        SystemGetDriverVersion="570.1",
        DeviceGetMemoryInfo=SimpleNamespace(total=16),
        DeviceGetEnforcedPowerLimit=250500,
        DeviceGetClockInfo=lambda handle, clock: 1000 if clock == pynvml.NVML_CLOCK_SM else 2000,
        DeviceGetViolationStatus=lambda handle, policy: SimpleNamespace(
            violationTime=slowed.get(policy, 0)
        ),
        DeviceGetCurrentClocksThrottleReasons=0x44,
        DeviceGetProcessUtilization=lambda handle, since: [
            used(pid=own[1].pid, smUtil=90),
            used(pid=other.pid, smUtil=7, timeStamp=since + 1),
        ],
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert nvidia.kinds() == [("GPU 0", 16), ("GPU 1", 16)]
    state = {
        "sm_clock_mhz": 1000,
        "memory_clock_mhz": 2000,
        "temperature_celsius": None,
        "thermal_slowdown_seconds": 2.5,
        "clock_reasons": ["sw_power_cap", "hw_thermal_slowdown"],
        "others_share": 0.07,
    }
    limits = {"name": "GPU 1", "driver": "570.1", "memory_bytes": 16, "power_limit_watts": 250.5}
    assert nvidia.gpus() == [limits | {"max_sm_clock_mhz": None} | state]
    assert condition.sample()["gpus"] == [state]
    monkeypatch.setenv(
        "TORCHELASTIC_RUN_ID", "none"
    )  # torchrun's agent, with all its ranks, started this process
    assert nvidia.states() == [state | {"others_share": 0.0}]
    rank.communicate()


def test_a_gpu_of_others_is_left_out_and_a_lost_one_stops_no_command(monkeypatch):
    """NVML counts devices that a container may not open; a lost one answers nothing."""
    closed = refusing(pynvml.NVML_ERROR_NO_PERMISSION)
    opened = {"DeviceGetHandleByIndex": lambda index: index or closed()}
    answer(monkeypatch, pynvml.NVML_ERROR_GPU_IS_LOST, **opened)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert nvidia.kinds() == [(nvidia.UNNAMED, None)]
    assert [set(each.values()) for each in nvidia.gpus()] == [{None}]
    assert len(condition.read()["gpus"]) == len(condition.sample()["gpus"]) == 1


@pytest.mark.parametrize(
    "name", ["HwThermalSlowdown", "SwThermalSlowdown", "HwPowerBrakeSlowdown", "SwPowerCap"]
)
def test_reasons_are_the_librarys_own_bits(name):
    own = re.sub("(?<=[a-z])([A-Z])", r"_\1", name).lower()
    assert 1 << nvidia.REASONS.index(own) == getattr(pynvml, f"nvmlClocksEventReason{name}")


# A100 and its part: https://github.com/NVIDIA/nvidia-container-toolkit/issues/203 (an LXC
# container); the GPU of a pod: https://github.com/DataDog/datadog-agent/pull/33120 (Kubernetes)
A100, A100_PART = (
    "GPU-932bfb2c-849a-2a22-1e84-9eff6bc02b39",
    "MIG-0929581a-2be6-5dec-bf34-0954c6c529a6",
)
POD = "GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16"
VISIBLE = f"""
{POD}: [4]
{POD},{A100}: [4, 3]
MIG-{A100}/1/0: [3]
{A100_PART}: [3]
MIG-0929581b: []
"": []
"-1": []
1,-1,0: [1]
1,7,0: [1]
GPU-07c1dddd-3333, GPU-5f1: [2, 0]
GPU-5f: []  # two GPUs begin so
"""


@pytest.mark.parametrize(("given", "places"), yaml.safe_load(VISIBLE).items())
def test_cuda_visible_devices_is_read_as_cuda_reads_it(given, places):
    names = (
        "GPU-5f12b4c0-1111",
        "GPU-5f99aaaa-2222",
        "GPU-07c1dddd-3333",
        f"{A100} {A100_PART}",
        POD,
    )
    assert nvidia.visible(given, [*map(str.split, names)]) == places


def test_processes_that_a_container_hides_are_not_counted():
    assert nvidia.others_share([], own=[1]) == 0
    hidden = SimpleNamespace(pid=2**22 + 7, smUtil=50)
    assert nvidia.others_share([hidden], own=[os.getpid()]) is None


@pytest.mark.parametrize("lacking", ["library", "driver"])
def test_without_nvidias_library_or_driver_there_are_no_gpus(monkeypatch, lacking):
    monkeypatch.setattr(pynvml, "nvmlInit", refusing(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    if lacking == "library":
        monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvidia.gpus() == nvidia.states() == nvidia.kinds() == []
    assert "gpus" not in condition.sample()


def test_a_run_keeps_the_condition_at_both_ends_of_each_training_window(tmp_path, monkeypatch):
    clocks = {"awake_seconds": 1.0, "elapsed_seconds": 1.0}
    monkeypatch.setattr(condition, "sample", lambda: clocks | {"power_source": "battery"})
    record = run(tmp_path, "20260101T000000Z-00000001")
    record.manifest = {"condition_before": {}}
    for phase in ("warmup", "train", "evaluate"):
        with record.during(phase):
            record.append(seconds=1.0)
            record.append(seconds=1.0, repeat=1)
    record.end()
    kept = json.loads((tmp_path / f"{record.run_id}.json").read_text())["conditions"]
    assert [(sample.get("repeat"), sample.get("index")) for sample in kept] == [
        (None, None),
        (0, 0),
        (1, 0),
    ]
    samples = condition.samples(manifests.read_all(tmp_path))
    assert (
        samples[["run_id", "power_source"]].to_numpy().tolist() == [[record.run_id, "battery"]] * 3
    )
    assert condition.samples(manifests.read_all(tmp_path / "nothing")).empty


def test_a_condition_names_no_serial_number_and_no_process(monkeypatch):
    monkeypatch.setattr(
        condition, "output", lambda *command: BATTERY.replace("4522083", "serial-planted")
    )
    monkeypatch.setattr(condition.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(condition, "clocks", lambda: (1.0, 1.0))
    with subprocess.Popen(
        [sys.executable, "-c", "input()", "process-planted"], stdin=subprocess.PIPE
    ):
        values = json.dumps([condition.read(), condition.sample()])
    assert "planted" not in values
    assert "battery" in values


def blockers() -> list[psutil.Process]:
    return [
        child for child in psutil.Process().children() if "planted" in " ".join(child.cmdline())
    ]


def test_the_command_that_prevents_sleep_ends_with_the_block_even_if_it_fails(monkeypatch):
    monkeypatch.setattr(
        awake, "COMMANDS", {"Plan9": "tail -f -q --pid={process} /dev/null planted"}
    )
    monkeypatch.setattr(awake.platform, "system", lambda: "Plan9")

    def fail():
        with awake.awake():
            deadline = time.monotonic() + 10  # the process may not run its command yet
            while not blockers() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert [child.cmdline()[3] for child in blockers()] == [f"--pid={os.getpid()}"]
            raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        fail()
    assert blockers() == []


@pytest.mark.parametrize("commands", [{}, {"Plan9": "no-such-command planted {process}"}])
def test_a_system_without_such_a_command_measures_as_well(monkeypatch, commands):
    monkeypatch.setattr(awake, "COMMANDS", commands)
    monkeypatch.setattr(awake.platform, "system", lambda: "Plan9")
    with awake.awake():
        assert blockers() == []
