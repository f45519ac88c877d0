"""Environment variables of speed: which of them a manifest keeps, what of their values, and which
change the result of a device and a framework."""

import csv
import functools
import os
import platform
import re
from fnmatch import fnmatchcase
from pathlib import Path

from benchbook.machine.kinds import KINDS

# Each line has points, the variables of speed or arithmetic that these read, and where that is
# written. A point is kind/framework/library of matrix products (of torch on a CPU), and /several
# where several devices train together; `*` is any of these, and a pattern may end early. A variable
# stands with the values that change nothing (A=0|none); 0 stands for false, too.
with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as _file:
    TABLE = [*csv.DictReader(_file)]
# A process that leaves a GPU's memory to other frameworks; see `frameworks.devices`.
SHARES_MEMORY = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
# What this library sets by itself changes no point.
SET_HERE = SHARES_MEMORY | {
    name: value for kind in KINDS.values() for name, value in kind.environment.items()
}
THREADS = "OMP_NUM_THREADS"  # torch's
TENSORFLOW_THREADS, XLA_THREADS = "TF_NUM_INTRAOP_THREADS", "PJRT_NPROC"
DEVICES_OF_CPU = "--xla_force_host_platform_device_count"  # this library's flag for JAX
FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"  # changes a point where an operation did fall back
WITHHELD = "(set)"  # in place of a value that may be private
MOST_CHARACTERS = 200  # of a value
# The words that may be published, besides usual values: those that name a person, a computer or a
# place are not among them.
WORDS = """
active passive default avx avx2 avx512 avx512_core avx512_core_amx avx512_core_bf16 sse41 sse42
avx512_core_vnni strict any auto bf16 fp16 fp32 tf32 bfloat16 float32 tensorfloat32 highest
high compatible amx threadsafe rbg threefry2x32 unsafe_rbg
haswell skylakex cooperlake sapphirerapids zen neoversen1 neoversev1 neoversev2 armv8
spread close master primary threads cores sockets compact scatter balanced granularity fine
core none respect verbose intel gnu tbb sequential
ring tree collnet collnetdirect collnetchain nvls nvlstree ll ll128 simple
loc nvl pix pxb phb sys eager lazy normal fast hybrid dynamic_hybrid
backend native cudamallocasync expandable_segments max_split_size_mb pinned_use_background_threads
garbage_collection_threshold roundup_power2_divisions pinned_use_cuda_host_register
:4096:8 :16:8 platform bfc cuda_async vmm gpu_private gpu_shared global flat composite combined
xla_gpu_autotune_level xla_gpu_deterministic_ops xla_gpu_enable_latency_hiding_scheduler
xla_gpu_enable_triton_gemm xla_gpu_enable_command_buffer xla_gpu_strict_conv_algorithm_picker
xla_cpu_enable_fast_math xla_cpu_multi_thread_eigen xla_force_host_platform_device_count
intra_op_parallelism_threads tf_xla_auto_jit tf_xla_cpu_global_jit
"""
TRUE, FALSE = {"1", "true", "yes", "on", "y", "t"}, {"0", "false", "no", "off", "n", "f"}
KNOWN = {*WORDS.split(), *TRUE, *FALSE}
NUMBER = re.compile(r"-?(\d{1,12}(\.\d{1,6})?|\.\d{1,6})(-\d{1,4})?[kmg]?b?", re.IGNORECASE)


def _parsed(text: str) -> dict[str, str]:
    """Return each name in a cell of the table with the values that change nothing."""
    return dict(each.partition("=")[::2] for each in text.split())


LISTED = {name for line in TABLE for name in _parsed(line["variables"])}


@functools.cache
def _of(point: str) -> dict[str, str]:
    """Return the variables of speed of a point, each with its usual values."""
    found: dict[str, str] = {}
    for line in TABLE:
        if any(fnmatchcase(point, f"{each}*") for each in line["points"].split()):
            found |= _parsed(line["variables"])
    return found


def recorded() -> dict[str, str]:
    """Return the listed variables that are set, for a manifest, each with what of its value may be
    published."""
    return {
        name: public(value)
        for name, value in sorted(os.environ.items())
        if value and name in LISTED
    }


def public(value: str) -> str:
    """Return a value if it consists of numbers, booleans and known words, else WITHHELD."""

    def is_known(text: str) -> bool:
        word = text.lower().lstrip("-")
        return word in KNOWN or NUMBER.fullmatch(text) is not None

    for part in re.split(r"[\s,;]+", value.strip()):
        name, *rest = re.split("[=:]", part, maxsplit=1)
        is_option = name.lower().lstrip("-") in WORDS.split() and rest and is_known(rest[0])
        if not (is_known(part) or is_option):
            return WITHHELD
    return value if len(value) <= MOST_CHARACTERS else WITHHELD


def changing(manifest: dict) -> str:
    """Return the recorded variables that change the speed or arithmetic of a run, as one text.

    Those that have the value of `SET_HERE`, or a usual one, do not. THREADS is not among them: it
    is part of what identifies the machine.

    Args:
        manifest: with parameters, environment, and the library's facts; any may be missing.
    """
    given = manifest.get("parameters") or {}
    blas = (manifest.get("library") or {}).get("blas") or ""
    point = f"{given.get('device')}/{given.get('framework', 'torch')}/{blas}"
    listed = _of(f"{point}/several" if (given.get("device_count") or 1) > 1 else point)
    if manifest.get("misplaced_operations"):
        listed = listed | {FALLBACK: "0"}
    flag, found = re.compile(rf"{DEVICES_OF_CPU}=\d+"), []
    for name, value in ((manifest.get("environment") or {}).get("variables") or {}).items():
        left = flag.sub("", value).strip()
        if name not in listed or not left or value == SET_HERE.get(name):
            continue
        if _plain(left) not in map(_plain, listed[name].split("|")):
            found.append(f"{name}={left}")
    return ", ".join(found)


def changed(parameters: dict, users: dict[str, str]) -> str:
    """Return those of a user's variables that will change a point; see `changing`.

    torch is assumed to have the library of matrix products that its wheels for this computer have.
    """
    blas = "mkl" if platform.machine() in ("x86_64", "AMD64") else "open"
    blas = "accelerate" if platform.system() == "Darwin" else blas
    environment = {"variables": users}
    return changing(
        {"parameters": parameters, "environment": environment, "library": {"blas": blas}}
    )


def _plain(value: str) -> str:
    """Return a value in small letters, and a boolean as 1 or 0."""
    word = value.lower()
    return "1" if word in TRUE else "0" if word in FALSE else word
