"""What the tools of real machines printed, as their owners reported it: each with its address, cut to what is read."""

import platform
import re

import pytest

from benchbook.machine import condition, identity, nvidia

THERM_M1_PRO = """Note: No thermal warning level has been recorded
Note: No performance warning level has been recorded
Note: No CPU power status has been recorded
"""  # https://github.com/exelban/stats/issues/749 (MacBook Pro 14-inch 2021, macOS 12.1)
THERM_INTEL = """    CPU_Scheduler_Limit     = 100
    CPU_Available_CPUs  = 8
    CPU_Speed_Limit     = 35
"""  # https://newbetuts.com/407192-where-does-the-pmset-cpu-speed-limit-variable-come-from-and-how-to-modify-it
LOW_POWER_MODE = """ tcpkeepalive         1
 lowpowermode         0
 womp                 1
"""  # https://github.com/AppHouseKitchen/AlDente-Battery_Care_and_Monitoring/issues/603 (Apple silicon)
POWER_MODE_M1_MAX = """ Sleep On Power Button 1
 powermode            0
 standby              1
 ttyskeepawake        1
"""  # https://github.com/alfredapp/low-power-mode-workflow/issues/6 (macOS 14)
# https://github.com/imwally/battstat/issues/2 (macOS 10.11)
BATTERY = """Now drawing from 'Battery Power'
 -InternalBattery-0 \t90%; discharging; (no estimate) present: true
"""
MAINS = """Now drawing from 'AC Power'
 -InternalBattery-0 \t88%; AC attached; not charging present: true
"""
DESKTOP = "Now drawing from 'AC Power'\n"  # https://github.com/liquidprompt/liquidprompt/pull/317 (iMac)
# https://github.com/mingrath/mbcheck/blob/main/research/shop-readable-health-facts.md (M4 Air, macOS 26.5)
PRESSURE_M4 = "com.apple.system.thermalpressurelevel 1\n"
VM_STAT_INTEL = """Mach Virtual Memory Statistics: (page size of 4096 bytes)
Pageins:                                 280307.
Pageouts:                                     0.
Swapins:                                      0.
Swapouts:                                     0.
"""  # https://github.com/wazuh/wazuh/issues/22113
# https://github.com/mackerelio/go-osstat/pull/29 (M1 Mac mini); the counters below are those of the Intel Mac above.
VM_STAT_M1 = VM_STAT_INTEL.replace("4096", "16384")
# https://github.com/archspec/archspec/issues/38 and https://github.com/workhorsy/py-cpuinfo/issues/162
BRANDS = ("Apple processor", "Apple M1")
CPUINFO_M1_LINUX = """processor\t: 0
BogoMIPS\t: 48.00
CPU implementer\t: 0x61
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0x022
"""  # https://github.com/ad-oliviero/uwufetch/issues/215
# https://github.com/NVIDIA/nvidia-container-toolkit/issues/203 (in an LXC container, driver 530)
A100 = "GPU-932bfb2c-849a-2a22-1e84-9eff6bc02b39"
A100_PARTS = ("MIG-0929581a-2be6-5dec-bf34-0954c6c529a6", "MIG-3adbed3a-d03d-549f-a016-ba1fd7359f23")
# https://github.com/DataDog/datadog-agent/pull/33120 (in a Kubernetes pod, driver 535)
A100_POD = "GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16"


@pytest.mark.parametrize(("printed", "limit"), [(THERM_M1_PRO, None), (THERM_INTEL, 35)])
def test_apple_silicon_prints_no_speed_limit_and_an_intel_mac_does(printed, limit):
    assert condition.parsed("cpu_speed_limit_percent", printed) == limit


@pytest.mark.parametrize("printed", [LOW_POWER_MODE, POWER_MODE_M1_MAX])
def test_low_power_mode_goes_by_two_names(printed):
    assert condition.parsed("low_power_mode", printed) is False
    turned_on = re.sub(r"(powermode +)0", r"\g<1>1", printed)
    assert condition.parsed("low_power_mode", turned_on) is True


@pytest.mark.parametrize(
    ("printed", "source", "percent"), [(BATTERY, "battery", 90), (MAINS, "mains", 88), (DESKTOP, "mains", None)]
)
def test_power_comes_from_a_battery_or_the_mains_and_a_desktop_has_no_battery(printed, source, percent):
    assert condition.parsed("power_source", printed) == source
    assert condition.parsed("battery_percent", printed) == percent


def test_thermal_pressure_is_a_number_with_a_name():
    assert condition.parsed("thermal_pressure", PRESSURE_M4) == "moderate"


@pytest.mark.parametrize(("printed", "page"), [(VM_STAT_INTEL, 4096), (VM_STAT_M1, 16384)])
def test_pages_are_of_the_size_that_vm_stat_prints(printed, page):
    assert condition.swapped(printed) == {"swapped_in_bytes": 0, "swapped_out_bytes": 0}
    some = re.sub(r"(Swapins: +)0", r"\g<1>3", printed)
    assert condition.swapped(some)["swapped_in_bytes"] == 3 * page


@pytest.mark.parametrize("brand", BRANDS)
def test_every_brand_makes_a_name_of_a_machine(monkeypatch, brand):
    monkeypatch.delenv("BENCHBOOK_MACHINE", raising=False)
    monkeypatch.setattr(identity, "_chip", lambda: brand)
    assert identity.identify().name.startswith("apple-")


@pytest.mark.parametrize(
    ("lscpu", "chip"),
    [("Model name: Icestorm-M1\nModel name: Firestorm-M1\n", "Icestorm-M1 + Firestorm-M1"), ("", "ARM 0x61 0x022")],
)
def test_a_linux_on_apple_silicon_names_its_cores_by_lscpu_or_by_their_numbers(monkeypatch, tmp_path, lscpu, chip):
    (tmp_path / "cpuinfo").write_text(CPUINFO_M1_LINUX)
    monkeypatch.setattr(identity, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(identity, "DEVICE_TREE", tmp_path / "none")
    monkeypatch.setattr(identity, "output", lambda *command: lscpu)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    assert identity.identify("a-name").chip == chip


@pytest.mark.parametrize(
    ("given", "places"),
    [
        (A100_POD, [1]),
        (A100_POD[:12], [1]),
        (f"{A100_POD},{A100}", [1, 0]),
        (f"MIG-{A100}/1/0", [0]),
        (A100_PARTS[0], []),  # these names do not hold their GPU's: NVML is asked whose they are
    ],
)
def test_gpus_and_their_parts_are_told_by_the_names_that_nvidia_smi_prints(given, places):
    assert nvidia.visible(given, [A100, A100_POD]) == places
