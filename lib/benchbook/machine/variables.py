"""Environment variables of frameworks and libraries: the list that a manifest keeps, and those
that change a result."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from benchbook.machine.kinds import KINDS

PREFIXES = (
    "PYTORCH_",
    "TORCH_",
    "TORCHINDUCTOR_",
    "TORCHDYNAMO_",
    "NVIDIA_",
    "CUDA_",
    "CUBLAS_",
    "CUDNN_",
    "XLA_",
)
PREFIXES += (
    "TF_",
    "JAX_",
    "KERAS_",
    "MLX_",
    "OMP_",
    "MKL_",
    "KMP_",
    "OPENBLAS_",
    "VECLIB_",
    "ONEDNN_",
    "DNNL_",
)
PREFIXES += ("MALLOC_", "GLIBC_", "LD_PRELOAD")
# Not recorded: secrets, and variables of Terraform, which has a prefix of TensorFlow's.
PRIVATE = re.compile(
    "KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|URL|^TF_(VAR|CLI|DATA|WORKSPACE|INPUT)_?", re.IGNORECASE
)
# A variable with one of these words in its name changes neither speed nor arithmetic; container
# images set many.
HARMLESS = {
    "VERSION",
    "BUILD",
    "HOME",
    "PATH",
    "DIR",
    "ROOT",
    "VISIBLE",
    "ORDER",
    "CACHE",
    "LOG",
    "LOGS",
    "REQUIRE",
}
HARMLESS |= {"DRIVER", "PRODUCT", "ARCH", "BACKEND", "PLATFORMS"}
# A process that keeps the memory that a step frees; see `frameworks.allocator`.
KEEPS_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_MMAP_MAX_": "0"}
# A process that leaves a GPU's memory to other frameworks; see `frameworks.devices`.
SHARES_MEMORY = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
# Of all variables, what this library, scikit-learn, torch and torchrun set by themselves.
USUAL = (
    KEEPS_MEMORY | SHARES_MEMORY | {"MLX_ENABLE_TF32": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
)
USUAL |= {
    "KMP_DUPLICATE_LIB_OK": "True",
    "KMP_INIT_AT_FORK": "FALSE",
    "CUDA_MODULE_LOADING": "LAZY",
}
USUAL |= {name: value for kind in KINDS.values() for name, value in kind.environment.items()}
THREADS = "OMP_NUM_THREADS"  # torch's
TENSORFLOW_THREADS, XLA_THREADS = "TF_NUM_INTRAOP_THREADS", "PJRT_NPROC"
DEVICES_OF_CPU = "--xla_force_host_platform_device_count"  # this library's flag for JAX
PATH = "(path)"  # in place of one
MOST_CHARACTERS = 200  # of a value


@contextmanager
def setting(**values: str) -> Iterator[None]:
    """Set environment variables in a `with` block, and restore them at its end."""
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def recorded() -> dict[str, str]:
    """Return the variables with these prefixes, for a manifest: of a path only the name of a
    library stays."""
    return {
        name: re.sub(r"[^\s:;,='\"]*/[^\s:;,'\"]*", _name, value)[:MOST_CHARACTERS]
        for name, value in sorted(os.environ.items())
        if value and name.startswith(PREFIXES) and not PRIVATE.search(name)
    }


def unusual(variables: dict[str, str]) -> str:
    """Return the recorded variables that may change speed or arithmetic, as one text, without
    those that are USUAL.

    THREADS is not among them: it is part of what identifies the machine.
    """
    flag, changing = re.compile(rf"{DEVICES_OF_CPU}=\d+"), {}
    for name, value in variables.items():
        if name != THREADS and value != PATH and not HARMLESS & {*name.split("_")}:
            changing[name] = flag.sub("", value).strip()
    return ", ".join(
        f"{name}={value}" for name, value in changing.items() if value != USUAL.get(name, "")
    )


def _name(path: re.Match) -> str:
    name = path[0].rpartition("/")[2]
    return name if ".so" in name else PATH
