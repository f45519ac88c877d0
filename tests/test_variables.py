"""Which environment variables a manifest keeps, what of their values, and which points they
change."""

import fnmatch
import os
import warnings

import pytest
import torch

from benchbook.frameworks import devices
from benchbook.judging import verdicts, wording
from benchbook.machine import condition, context, identity, variables
from benchbook.machine.kinds import KINDS
from benchbook.measuring import protocol
from benchbook.running import session
from benchbook.running.profiles import Point
from made.fakes import FakeWorkload
from made.rows import make_rows, windows

# A variable, what a manifest keeps of it (nothing: it is not recorded), and the points that it
# changes: kind/framework, with torch's library of matrix products on a CPU (/mkl, /open, ...), and
# x2 where several devices train together.
TABLE = """
ATEN_CPU_CAPABILITY=default         | default | cpu/torch
OMP_NUM_THREADS=1                   |         |
OMP_PROC_BIND=close                 | close   | cpu/torch
OMP_PROC_BIND=FALSE                 | FALSE   |
OMP_WAIT_POLICY=PASSIVE             | PASSIVE | cpu/torch
GOMP_CPU_AFFINITY=0-3               | 0-3     | cpu/torch
KMP_BLOCKTIME=0                     | 0       | cpu/torch
KMP_DUPLICATE_LIB_OK=True           |         |
MKL_NUM_THREADS=1                   | 1       | cpu/torch/mkl
MKL_DYNAMIC=TRUE                    | TRUE    |
OPENBLAS_NUM_THREADS=1              | 1       | cpu/torch/open cpu/mlx
OPENBLAS_CORETYPE=Haswell           | Haswell | cpu/torch/open cpu/mlx
VECLIB_MAXIMUM_THREADS=1            | 1       | cpu/torch/accelerate cpu/mlx
ONEDNN_MAX_CPU_ISA=AVX2             | AVX2    | cpu/torch cpu/tensorflow cpu/jax
ONEDNN_DEFAULT_FPMATH_MODE=BF16     | BF16    | cpu/torch cpu/tensorflow cpu/jax xpu/torch
MALLOC_TRIM_THRESHOLD_=-1           | -1      |
MALLOC_TRIM_THRESHOLD_=0            | 0       | cpu/*
MALLOC_ARENA_MAX=2                  | 2       | cpu/*
LD_PRELOAD=/home/jane/libx.so       | (set)   | cpu/*
TF_ENABLE_ONEDNN_OPTS=1             | 1       |
TF_ENABLE_ONEDNN_OPTS=0             | 0       | cpu/tensorflow
TF_CPP_MIN_LOG_LEVEL=2              |         |
TF_GPU_THREAD_MODE=gpu_private      | gpu_private | cuda/tensorflow
TF_FORCE_GPU_ALLOW_GROWTH=true      | true    |
TF_XLA_FLAGS=--tf_xla_auto_jit=2    | --tf_xla_auto_jit=2 | */tensorflow
JAX_ENABLE_X64=0                    | 0       |
JAX_ENABLE_X64=True                 | True    | */jax
JAX_DEFAULT_MATMUL_PRECISION=highest | highest | */jax
JAX_PLATFORMS=cpu                   |         |
XLA_FLAGS=--xla_force_host_platform_device_count=2 | --xla_force_host_platform_device_count=2 |
XLA_FLAGS=--xla_dump_to=/home/jane  | (set)   | */jax */tensorflow
XLA_PYTHON_CLIENT_MEM_FRACTION=.5   | .5      | cuda/jax
XLA_PYTHON_CLIENT_PREALLOCATE=false | false   |
CUDA_LAUNCH_BLOCKING=1              | 1       | cuda/* rocm/torch
CUDA_MODULE_LOADING=LAZY            | LAZY    |
CUDA_VISIBLE_DEVICES=0              |         |
CUBLAS_WORKSPACE_CONFIG=:4096:8     | :4096:8 | cuda/*
NVIDIA_TF32_OVERRIDE=0              | 0       | cuda/*
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True | expandable_segments:True | cuda/torch rocm/torch
TORCH_HOME=/home/jane               |         |
TORCHINDUCTOR_CACHE_DIR=/tmp/jane   |         |
TORCHINDUCTOR_MAX_AUTOTUNE=1        | 1       | */torch
NCCL_P2P_DISABLE=1                  | 1       | cuda/*x2 rocm/torchx2
NCCL_SOCKET_IFNAME=eth0             |         |
CCL_WORKER_COUNT=4                  | 4       | xpu/torchx2
HSA_OVERRIDE_GFX_VERSION=10.3.0     | (set)   | rocm/torch
MIOPEN_FIND_MODE=FAST               | FAST    | rocm/torch
ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE  | COMPOSITE | xpu/torch
LIBTPU_INIT_ARGS=--xla_tpu_x=1      | (set)   | tpu/jax
MTL_DEBUG_LAYER=1                   | 1       | mps/torch metal/*
PYTORCH_MPS_HIGH_WATERMARK_RATIO=1.0 | 1.0    |
PYTORCH_MPS_FAST_MATH=1             | 1       | mps/torch
PYTORCH_ENABLE_MPS_FALLBACK=1       | 1       |
MLX_DISABLE_COMPILE=1               | 1       | cpu/mlx metal/mlx
NVIDIA_API_KEY=1                    |         |
TF_VAR_password=1                   |         |
"""
LINES = [[*map(str.strip, line.split("|"))] for line in TABLE.strip().splitlines()]
PLACES = [(kind, name) for kind in KINDS for name in KINDS[kind].frameworks]


@pytest.fixture
def only(monkeypatch):
    """Return a function that sets one variable, and no other."""
    context.change(limits={})

    def set_alone(given: str) -> None:
        monkeypatch.setattr(os, "environ", dict([given.split("=", 1)]))

    return set_alone


def points() -> dict[str, dict]:
    """Return the manifest of a point of every kind of device, framework, library and count."""
    found = {}
    for kind, framework in PLACES:
        for blas in ("mkl", "open", "accelerate") if framework == "torch" else ("",):
            for count in (1, 2):
                given = {"device": kind, "framework": framework, "device_count": count}
                manifest = {"parameters": given, "library": {"blas": blas}}
                found[f"{kind}/{framework}/{blas}x{count}"] = manifest
    return found


def matches(point: str, pattern: str) -> bool:
    pattern += "/*" * (2 - pattern.count("/"))
    return fnmatch.fnmatchcase(point, pattern if "x2" in pattern else f"{pattern}x?")


@pytest.mark.parametrize(("given", "kept", "changed"), LINES, ids=[line[0] for line in LINES])
def test_a_variable_changes_the_points_of_those_who_read_it(only, given, kept, changed):
    only(given)
    name, recorded = given.partition("=")[0], identity.environment()["variables"]
    assert recorded == ({name: kept} if kept else {})
    marked = {
        point
        for point, manifest in points().items()
        if variables.changing(manifest | {"environment": {"variables": recorded}})
    }
    patterns = [each.replace("x2", "/*x2") if "x2" in each else each for each in changed.split()]
    assert marked == {
        point for point in points() if any(matches(point, pattern) for pattern in patterns)
    }


# What a user, a computer or a place is called, as it stands in variables of many kinds.
PRIVATE = r"""
jane doe jane.doe jane@example.org node17 gpu-node-03.cluster.example.org localhost desk
DESKTOP-4F2K9 /home/jane ~/models /mnt/scratch/jane C:\Users\Jane file:///home/jane ../jane
./secret.so 10.0.0.1 192.168.178.20:8080 [2001:db8::1] fe80::1 00:1b:44:11:3a:b7
00:11:22:33:44:55 eth0 ib0 enp3s0 mlx5_0 hf_abcdefgh sk-live-1234 AKIAIOSFODNN7EXAMPLE
ghp_16C7e42F eyJhbGciOi password hunter2 secret token=abc key:abc GPU-5f12b4c0-1111
MIG-0929581a-2be6 /dev/nvidia0 0000:3b:00.0 pci:0000:3b:00.0 SN123456 C02XG0FDH7JY
https://example.org/x?u=jane http://proxy:3128 s3://bucket/jane gs://jane jane-lab.slurm
--xla_dump_to=/home/jane --xla_tpu_jane=1 --flag=jane -O3 expandable_segments:jane backend:jane
default=jane 1=jane true=jane max_split_size_mb:10.0.0.1 spread,jane close;jane 1,jane jane,1
{0:4},{jane} cores(jane) $HOME ${USER} `whoami` $(hostname) 2026-11-28 28.11.2026 +49-30-1234567
(030)1234567 1234567890123 12.3456789 ProjectX acme-corp Müller 山田 jane_1 1_jane user1 u12345
uid=1000(jane) x9f8e7 deadbeef 0xdeadbeef a1b2c3d4e5f6 1e400jane nan-jane 10.15.7.2-rc1 v2.3.1
kernel-5.15 rack12u3 floor3 berlin us-east-1a eu-west-1 account:123456789012:role jane's a/b
Jane-Mac.local mac-von-jane
"""


def test_no_invented_value_reaches_a_manifest(monkeypatch):
    values = PRIVATE.split()
    assert len(values) >= 100
    for value in values:
        for given in (value, f"1,{value}", f"{value} true", f"--backend={value}"):
            assert variables.public(given) == "(set)"
    monkeypatch.setattr(os, "environ", {f"BY_{number}": each for number, each in enumerate(values)})
    assert variables.recorded() == {}
    for number, name in enumerate(variables.LISTED):
        monkeypatch.setattr(os, "environ", {name: values[number % len(values)]})
        assert variables.recorded() == {name: "(set)"}


def test_a_changed_point_says_so_in_its_verdict_and_once_before_the_points(only):
    only("CUDA_LAUNCH_BLOCKING=1")
    sample = {"awake_seconds": 1.0, "elapsed_seconds": 1.0}
    verdict, new = {}, []
    for kind in ("cpu", "cuda"):
        given = {"device": kind, "framework": "torch"}
        manifest = {"environment": identity.environment(), "parameters": given}
        conditions = condition.samples({"run-1": manifest | {"conditions": [sample]}})
        rows = make_rows(windows([300.0] * 6, device=kind))
        [point] = verdicts.summarise(rows, conditions).to_dict("records")
        verdict[kind] = str(point["verdict"]), wording.causes(point["verdict"], "variables")
        new.append(Point("toy", f"on-{kind}", given, 60))
    said = session._announced(new * 2, "desk", {point.key: float("nan") for point in new})
    assert said.splitlines()[1:] == [
        "CUDA_LAUNCH_BLOCKING=1: 2 points will be marked as changed. Unset it to measure without."
    ]
    assert verdict["cpu"] == ("too few processes", [])
    assert verdict["cuda"][0].startswith("changed: with CUDA_LAUNCH_BLOCKING=1")
    assert verdict["cuda"][1] == ["with CUDA_LAUNCH_BLOCKING=1"]


# As aten/src/ATen/mps/MPSFallback.mm writes it.
FELL_BACK = (
    "The operator 'aten::linalg_svd' is not currently supported on the MPS backend and will fall back"
    " to run on the CPU. This may have performance implications."
)


@pytest.mark.parametrize("warned", [FELL_BACK, "another warning", ""])
def test_an_operation_that_fell_back_changes_a_point(record, clock, monkeypatch, warned):
    workload = FakeWorkload(clock)
    step = workload.step

    def warning_step(batch):
        if warned:
            warnings.warn(warned, UserWarning, stacklevel=1)
        return step(batch)

    monkeypatch.setattr(workload, "step", warning_step)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        protocol.warm_up(workload, record, 1)
    assert [str(each.message) for each in heard][:1] == [warned] * bool(warned)
    expected = {"aten::linalg_svd": 1} if warned == FELL_BACK else None
    assert record.manifest.get("misplaced_operations") == expected
    manifest = record.manifest | {
        "parameters": {"device": "mps", "framework": "torch"},
        "environment": {"variables": {"PYTORCH_ENABLE_MPS_FALLBACK": "1"}},
    }
    told = variables.changing(manifest)
    assert told == ("PYTORCH_ENABLE_MPS_FALLBACK=1" if expected else "")


def test_torch_reports_its_own_facts():
    facts = devices.backend("torch").facts()
    assert facts["threads"] == str(torch.get_num_threads())
    assert facts["cpu_capability"] in ("DEFAULT", "AVX2", "AVX512", "NEON", "SVE256")
    assert f"BLAS_INFO={facts['blas']}" in torch.__config__.show()
