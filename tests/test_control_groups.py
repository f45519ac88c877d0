"""A container's or a job's limits, in both versions of control groups, from files laid out as
Linux does."""

import os
import resource
from types import SimpleNamespace

import psutil
import pytest
import yaml

from benchbook.machine import condition, context, control_groups, identity, variables
from benchbook.measuring import float64
from benchbook.running import series

EVENTS = {"memory.events": "low 0\nhigh 0\nmax 12\noom 2\noom_kill 2\noom_group_kill 0\n"}
FREE = {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}
HALF = {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}
LIMITED = {"cpu.max": "150000 100000"}
SHORT = {"cpu.max": "5000 10000"}  # a quota of half a core, in periods of 10 ms
NO_LIMIT = {"cpu.max": "max 100000"}
KILLED = {"memory.oom_control": "under_oom 0\noom_kill 2\n"}
NAMED = {"free": FREE, "half": HALF, "limited": LIMITED, "short": SHORT, "none": NO_LIMIT}
NAMED |= {"killed": KILLED, "limited, killed": LIMITED | EVENTS}
# The text of /proc/self/cgroup, the files of each folder, cores allowed, and kills.
CASES = yaml.safe_load("""
none: ["", {}, null, 0]
version 2: ["0::/jobs/7", {jobs/7: "limited, killed"}, 1.5, 2]
version 2, no limit: ["0::/jobs/7", {jobs/7: none}, null, 0]
version 2, nested: ["0::/jobs/7/step", {jobs: limited, jobs/7: short, jobs/7/step: none}, 0.5, 0]
version 2, a container: ["0::/", {.: "limited, killed"}, 1.5, 2]
version 1: ["9:cpu,cpuacct:/j\\n6:memory:/j", {cpu/j: half, memory/j: killed}, 0.5, 2]
version 1, no limit: ["9:cpu:/\\n6:memory:/", {cpu: free}, null, 0]
version 1, nested: ["9:cpu:/jobs/7", {cpu/jobs: half, cpu/jobs/7: free}, 0.5, 0]
version 1, a container: ["9:cpu:/docker/12\\n6:memory:/docker/12", {cpu: half, memory: killed}, 0.5, 2]
both versions: ["9:cpu:/a\\n0::/a", {cpu/a: half, unified/a: none}, 0.5, 0]
""")


@pytest.fixture
def lay_out(monkeypatch, tmp_path):
    """Return a function that lays out control groups, in place of this computer's."""

    def write(groups: str, files: dict[str, dict[str, str]]) -> None:
        (tmp_path / "groups").write_text(f"{groups}\n" if groups else "")
        for folder, texts in files.items():
            (tmp_path / "mounted" / folder).mkdir(parents=True, exist_ok=True)
            for name, text in texts.items():
                (tmp_path / "mounted" / folder / name).write_text(text)
        monkeypatch.setattr(control_groups, "GROUPS", tmp_path / "groups")
        monkeypatch.setattr(control_groups, "MOUNTED", tmp_path / "mounted")

    return write


@pytest.mark.parametrize(("groups", "files", "quota", "kills"), CASES.values(), ids=CASES)
def test_quotas_and_kills_are_read_in_both_versions(lay_out, groups, files, quota, kills):
    lay_out(groups, {folder: NAMED[name] for folder, name in files.items()})
    assert control_groups.cpu_quota() == quota
    assert control_groups.memory_kills() == kills


GIB = 2**30
STATS = "cache 9\ninactive_file {0}\ntotal_inactive_file {0}\n"
SECOND = {
    "memory.max": f"{3 * GIB}",
    "memory.current": f"{2 * GIB}",
    "memory.stat": STATS.format(GIB),
}
SMALLER = SECOND | {"memory.max": f"{GIB}", "memory.current": "0"}
FIRST = {
    "memory.limit_in_bytes": f"{3 * GIB}",
    "memory.usage_in_bytes": f"{GIB}",
    "memory.stat": STATS.format(0),
}
# The text of /proc/self/cgroup, the files of each folder, GiB allowed, and GiB left.
MEMORIES = {
    "version 2": ("0::/pod", {"pod": SECOND}, 3, 2),
    "version 2, a container": ("0::/", {".": SECOND}, 3, 2),
    "version 2, nested": ("0::/pod/a", {"pod": SMALLER, "pod/a": SECOND}, 1, 2),
    "version 2, no limit": ("0::/pod", {"pod": {"memory.max": "max\n"}}, None, None),
    "version 1": ("6:memory:/docker/1", {"memory": FIRST}, 3, 2),
    "version 1, no limit": (
        "6:memory:/",
        {"memory": {"memory.limit_in_bytes": "9223372036854771712\n"}},
        None,
        None,
    ),
    "no controller": ("0::/pod", {"pod": {}}, None, None),
}


@pytest.mark.parametrize(("groups", "files", "most", "left"), MEMORIES.values(), ids=MEMORIES)
def test_a_containers_memory_is_the_machines(lay_out, monkeypatch, groups, files, most, left):
    total = SimpleNamespace(total=64 * GIB, available=60 * GIB)
    monkeypatch.setattr(identity.psutil, "virtual_memory", lambda: total)
    context.change(limits={})
    lay_out("", {})
    without = identity.fingerprint()
    lay_out(groups, files)
    assert control_groups.memory_limit() == (most and most * GIB)
    assert control_groups.memory_left() == (left and left * GIB)
    this = identity.identify()
    assert this.memory_bytes == series.memory_bytes("cpu") == (most or 64) * GIB
    assert f"-{most or 64}gb" in this.name
    assert (this.fingerprint != without) == bool(most)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with float64._free_memory():
        allowed = resource.getrlimit(resource.RLIMIT_DATA)[0]
        used = psutil.Process().memory_info().data
    assert abs(allowed - used - (left or 60) * GIB) < GIB / 2
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize(
    ("affinity", "quota", "usable", "limits"),
    yaml.safe_load("""
- [64, max, 64, {}]
- [64, 150000, 2, {usable_cores: 2, cpu_quota: 1.5}]
- [64, 50000, 1, {usable_cores: 1, cpu_quota: 0.5}]
- [64, 6400000, 64, {}]
- [2, 300000, 2, {usable_cores: 2}]
- [2, 150000, 2, {usable_cores: 2, cpu_quota: 1.5}]
"""),
)
def test_a_quota_is_a_limit_of_the_machine_and_threads_follow_it(
    lay_out, monkeypatch, affinity, quota, usable, limits
):
    lay_out("0::/", {".": {"cpu.max": f"{quota} 100000"}})
    monkeypatch.setattr(identity, "cores", lambda: {*range(affinity)})
    monkeypatch.setattr(identity.psutil, "cpu_count", lambda logical=True: 64)
    for name in (threads := (variables.THREADS, variables.TENSORFLOW_THREADS, "PJRT_NPROC")):
        monkeypatch.setenv(name, "1")
        monkeypatch.delenv(name)
    context.change(limits={})
    without = identity.fingerprint()
    context.change(limits=None)
    assert identity.limits() == limits
    assert identity.usable_cores() == usable
    assert [os.environ.get(name) for name in threads] == [
        str(usable) if "cpu_quota" in limits else None
    ] * 3
    assert not {*threads} & {*identity.environment()["variables"], *identity.users_variables()}
    assert identity.identify("desk").cpu_quota == limits.get("cpu_quota")
    assert (identity.fingerprint() != without) == bool(limits)
    assert "missing_cores" not in condition.sample()
    lay_out("0::/", {".": {"cpu.max": "100000 100000"}})  # in the middle of the study
    assert condition.sample().get("missing_cores", 0) == usable - 1
    lay_out("0::/", {".": {"cpu.max": "max 100000"}})
    monkeypatch.setattr(identity, "cores", lambda: {0})
    assert condition.sample().get("missing_cores", 0) == usable - 1
