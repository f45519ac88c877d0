"""The table of frameworks: a new one is one entry here and a folder in `benchbook.frameworks`.

That folder holds its devices, its operations for calibration and its training. A study's module
with a network is named after the network's library.
"""

import importlib
import sys
from dataclasses import dataclass, field
from types import ModuleType

from benchbook.machine import temporary


@dataclass(frozen=True)
class Framework:
    """The properties of a framework that are the same on all devices.

    Attributes:
        word: its name for people.
        library: in which its networks are written; a study's module with such a network has this
        name.
        settings: among those of a kind of device, the ones that it has; Keras offers no choice
        of memory format or
            fused optimiser, and JAX none of its compiler.
        reference: the framework whose float64 on the CPU is the reference of its parity; empty:
        its own.
        speed: the variables of speed or arithmetic that it reads, by kind of device; those under an
        empty name count on all kinds. For the form see `kinds.Features.speed`.
    """

    word: str
    library: str
    settings: tuple[str, ...] = ()
    reference: str = ""
    speed: dict[str, str] = field(default_factory=dict)


# The variables of a library of matrix products. torch names its own; see `backend.Backend.facts`.
BLAS = {
    "mkl": "MKL_NUM_THREADS MKL_DYNAMIC=1 MKL_CBWR MKL_ENABLE_INSTRUCTIONS MKL_DEBUG_CPU_TYPE"
    " MKL_DOMAIN_NUM_THREADS MKL_THREADING_LAYER",
    "open": "OPENBLAS_NUM_THREADS OPENBLAS_CORETYPE OPENBLAS_THREAD_TIMEOUT OPENBLAS_L2_SIZE"
    " OPENBLAS_DYNAMIC=1 GOTO_NUM_THREADS",
    "accelerate": "VECLIB_MAXIMUM_THREADS",
}
# Source: https://uxlfoundation.github.io/oneDNN/dev_guide_inspecting_jit.html and its neighbours
ONEDNN = (
    "ONEDNN_MAX_CPU_ISA=all DNNL_MAX_CPU_ISA=all ONEDNN_CPU_ISA_HINTS=no_hints"
    " ONEDNN_DEFAULT_FPMATH_MODE=strict DNNL_DEFAULT_FPMATH_MODE=strict ONEDNN_VERBOSE=0|none"
)
# Sources: https://gcc.gnu.org/onlinedocs/libgomp/Environment-Variables.html and LLVM's
# https://openmp.llvm.org/design/Runtimes.html; a Mac's torch has the latter
OPENMP = (
    "OMP_PROC_BIND=0 OMP_PLACES OMP_WAIT_POLICY OMP_DYNAMIC=0 OMP_THREAD_LIMIT GOMP_CPU_AFFINITY"
    " GOMP_SPINCOUNT KMP_AFFINITY=none|disabled KMP_BLOCKTIME=200 KMP_HW_SUBSET"
    " KMP_LIBRARY=throughput"
)
TORCH_CUDA = (
    "PYTORCH_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING=0 PYTORCH_TUNABLEOP_ENABLED=0"
    " TORCH_NCCL_BLOCKING_WAIT=0"
)

FRAMEWORKS: dict[str, Framework] = {
    "torch": Framework(
        "PyTorch",
        "torch",
        ("autotuned", "channels_last", "fused", "compiled", "graphs"),
        speed={
            "": "TORCH_COMPILE_DISABLE=0 TORCHDYNAMO_DISABLE=0 TORCHINDUCTOR_MAX_AUTOTUNE=0"
            " TORCHINDUCTOR_FREEZING=0 TORCHINDUCTOR_CPP_WRAPPER=0",
            # Source: https://docs.pytorch.org/docs/stable/threading_environment_variables.html
            "cpu": f"ATEN_CPU_CAPABILITY {OPENMP} {ONEDNN}",
            # Source: https://docs.pytorch.org/docs/stable/mps_environment_variables.html
            "mps": "PYTORCH_MPS_HIGH_WATERMARK_RATIO=1.7 PYTORCH_MPS_LOW_WATERMARK_RATIO=1.4"
            " PYTORCH_MPS_FAST_MATH=0 PYTORCH_MPS_PREFER_METAL=0",
            # Source: https://docs.pytorch.org/docs/stable/cuda_environment_variables.html
            "cuda": f"{TORCH_CUDA} PYTORCH_CUDA_ALLOC_CONF TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=0"
            " TORCH_CUDNN_V8_API_DISABLED=0 TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT",
            # Source: https://docs.pytorch.org/docs/stable/notes/hip.html
            "rocm": f"{TORCH_CUDA} PYTORCH_HIP_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF"
            " TORCH_BLAS_PREFER_HIPBLASLT DISABLE_ADDMM_CUDA_LT=0 PYTORCH_MIOPEN_SUGGEST_NHWC=0"
            " HIPBLAS_ALLOW_TF32",
            "xpu": "PYTORCH_ALLOC_CONF PYTORCH_XPU_ALLOC_CONF ONEDNN_DEFAULT_FPMATH_MODE=strict",
        },
    ),
    "tensorflow": Framework(
        "TensorFlow",
        "keras",
        ("compiled",),
        # Source: tensorflow/core/util of 2.20
        speed={
            "": "TF_XLA_FLAGS XLA_FLAGS TF_DETERMINISTIC_OPS=0 TF_NUM_INTEROP_THREADS",
            "cpu": "TF_ENABLE_ONEDNN_OPTS=1 TF_NUM_INTRAOP_THREADS"
            f" TF_ONEDNN_USE_SYSTEM_ALLOCATOR=0 {ONEDNN}",
            "cuda": "TF_FORCE_GPU_ALLOW_GROWTH=0|1 TF_GPU_ALLOCATOR TF_GPU_THREAD_MODE=global"
            " TF_GPU_THREAD_COUNT TF_CUDNN_DETERMINISTIC=0 TF_CUDNN_USE_AUTOTUNE=1",
        },
    ),
    # Source: https://docs.jax.dev/en/latest/config_options.html
    "jax": Framework(
        "JAX",
        "keras",
        speed={
            "": "XLA_FLAGS JAX_ENABLE_X64=0 JAX_DISABLE_JIT=0 JAX_DEFAULT_MATMUL_PRECISION"
            " JAX_DEBUG_NANS=0 JAX_DEBUG_INFS=0 JAX_DEFAULT_PRNG_IMPL=threefry2x32"
            " JAX_THREEFRY_PARTITIONABLE=1 JAX_ENABLE_CHECKS=0",
            "cpu": f"PJRT_NPROC JAX_CPU_ENABLE_ASYNC_DISPATCH=1 JAX_NUM_CPU_DEVICES=1 {ONEDNN}",
            "cuda": "XLA_PYTHON_CLIENT_PREALLOCATE=0|1 XLA_PYTHON_CLIENT_MEM_FRACTION"
            " XLA_PYTHON_CLIENT_ALLOCATOR=default|bfc",
        },
    ),
    # Its convolutions have no float64.
    "mlx": Framework(
        "MLX",
        "mlx",
        ("compiled",),
        reference="torch",
        speed={
            "": "MLX_DISABLE_COMPILE=0 MLX_BFS_MAX_WIDTH=20",
            "cpu": f"{BLAS['open']} {BLAS['accelerate']}",
            "metal": "MLX_MAX_OPS_PER_BUFFER MLX_MAX_MB_PER_BUFFER MLX_METAL_FAST_SYNCH=0",
        },
    ),
}
WORDS = {name: framework.word for name, framework in FRAMEWORKS.items()}
# A study with framework `best` takes the first of these that is installed.
PREFERRED = ("tensorflow", "jax", "torch", "mlx")
# What a library imports only where it is installed: TensorFlow's converter to Lite imports JAX, and
# Keras's wrappers import scikit-learn. Together they add 2.3 s of CPU time and 170 MB to each
# process with TensorFlow, 1.5 s and 50 MB to one with JAX. Neither library has a switch against it
# (TensorFlow 2.20, Keras 3.15).
OPTIONAL_IMPORTS = {"tensorflow": ("jax", "sklearn"), "keras": ("sklearn",)}


def import_alone(name: str) -> ModuleType:
    """Import a framework, or Keras, without its optional imports, which stay importable afterwards.

    Keras reads no keras.json of the user: its data format and float type are those that the
    networks are written for.

    Raises:
        ImportError: it is not installed, or does not work here.
    """
    skipped = [other for other in OPTIONAL_IMPORTS.get(name, ()) if other not in sys.modules]
    sys.modules.update(
        dict.fromkeys(skipped)
    )  # Python takes None for a module that is not installed
    try:
        with temporary.folder() as empty, temporary.variables(KERAS_HOME=str(empty)):
            return importlib.import_module(name)
    finally:
        for other in skipped:
            sys.modules.pop(other, None)
