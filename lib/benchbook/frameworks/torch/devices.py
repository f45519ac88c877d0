"""torch's devices: cpu, mps, cuda, rocm and xpu; see `frameworks.backend.Backend`.

Functions of `torch.accelerator` serve every accelerator; only cuda and mps need some of their
own. The output of an operation is allocated once.
"""

import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy
import torch
from torch.nn import functional as F

from benchbook.frameworks.backend import Backend, Operation, has_binaries
from benchbook.frameworks.devices import Device, Place
from benchbook.machine import identity
from benchbook.machine.kinds import KINDS


class TorchBackend(Backend):
    """torch on its accelerator or on the CPU."""

    framework = "torch"
    version = str(torch.__version__)

    def accelerator(self) -> str | None:
        # Without check_available a CUDA build reports cuda on a machine without a GPU.
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        if accelerator is None:
            return None
        return _kind(accelerator)

    def why_unseen(self, kind: str) -> str | None:
        if kind == "rocm" and not torch.version.hip:
            return None  # of AMD's GPUs, most are part of a CPU, and this build is not for them
        try:
            if (KINDS[kind].torch_type or kind) == "cuda":
                torch.cuda.init()
        except (RuntimeError, AssertionError) as error:
            return str(error).partition(". ")[0]
        return super().why_unseen(kind)

    def why_unusable(self, kind: str) -> str:
        built = torch.cuda.get_arch_list() if kind == "cuda" else []
        capability = self.capability(kind)
        ptx = [int(name.removeprefix("compute_")) for name in built if name.startswith("compute_")]
        if (
            not built
            or has_binaries(capability, built)
            or any(each <= capability * 10 for each in ptx)
        ):
            return ""
        return f"torch {self.version} has no code for compute capability {capability:g}; see docs/platforms.md"

    def name(self, kind: str, index: int = 0) -> str | None:
        module = torch.get_device_module(KINDS[kind].torch_type or kind)
        ask = getattr(module, "get_device_name", None) if KINDS[kind].own_chip else None
        return ask(index) if ask else None

    def in_use(self) -> list[Place]:
        """Return the accelerators with reserved memory; the CPU has no queue."""
        accelerator = torch.accelerator.current_accelerator()
        module = accelerator and torch.get_device_module(accelerator)
        if module is None or not getattr(module, "is_initialized", lambda: True)():
            return []
        for_all = getattr(
            module, "current_allocated_memory", lambda: True
        )  # of mps, which has one device
        used = getattr(module, "memory_reserved", lambda index: for_all())
        return [
            (_kind(accelerator), index) for index in range(module.device_count()) if used(index)
        ]

    def place_of(self, value: Any) -> Place | None:
        return (
            (_kind(value.device), value.device.index or 0)
            if isinstance(value, torch.Tensor)
            else None
        )

    def gather(self, key: str, values: list, seconds: float) -> list[list]:
        """Return each rank's values through the store of the process group, on no device and in
        no queue of its own."""
        group = torch.distributed
        if not (group.is_available() and group.is_initialized()):
            return [values]
        store = group.distributed_c10d._get_default_store()
        names = [f"benchbook/{key}/{rank}" for rank in range(group.get_world_size())]
        store.set(names[group.get_rank()], json.dumps(values))
        deadline = time.monotonic() + seconds
        while not store.check(names):
            if time.monotonic() > deadline:
                late = [str(rank) for rank, name in enumerate(names) if not store.check([name])]
                raise ValueError(
                    f"rank {', '.join(late)} has not come as far within {seconds:.0f} s; allowed: a measurement in each"
                    " rank, with as many steps"
                )
            time.sleep(0.001)
        return [json.loads(store.get(name)) for name in names]

    def capability(self, kind: str) -> float | None:
        if kind != "cuda":
            return None
        major, minor = torch.cuda.get_device_capability()
        return major + minor / 10

    def emulated_units(self, device: Device) -> tuple[str, ...]:
        """Return bf16 for a CPU on which oneDNN finds no bfloat16 instructions; without oneDNN
        it is unknown.

        Convolutions take 25 times as long there as in float32 (ResNet-18 on a CPU with only
        AVX2, torch 2.10).
        """
        onednn = device.is_cpu and torch.backends.mkldnn.is_available()
        has_units = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)  # private
        return ("bf16",) if onednn and not has_units() else ()

    def count(self, device: Device) -> int:
        return (
            identity.usable_cores()
            if device.is_cpu
            else torch.get_device_module(device.torch_type).device_count()
        )

    def synchronize(self, device: Device, last: object = None) -> None:
        """Wait for the accelerator; the CPU has no queue.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.accelerator.synchronize.html
        """
        if not device.is_cpu:
            torch.accelerator.synchronize(device.index)

    def reset_peak_memory(self, device: Device) -> None:
        with suppress(RuntimeError):  # see `peak_memory`
            if not device.is_cpu:
                self._memory(device).reset_peak_memory_stats(device.index)

    def peak_memory(self, device: Device) -> tuple[int | None, str | None]:
        """Return bytes and method; on mps, torch before 2.15 keeps no maximum, and raises an error.

        Source: https://github.com/pytorch/pytorch/pull/186748
        """
        try:
            return self._memory(device).max_memory_allocated(
                device.index
            ), f"{device.kind}_allocator_peak"
        except RuntimeError:
            return None, None

    def _memory(self, device: Device) -> Any:
        return (
            torch.cuda if device.torch_type == "cuda" else torch.accelerator
        )  # torch has the latter since 2.9

    def random_state(self, device: Device) -> dict:
        state = {"cpu": torch.get_rng_state()}
        if not device.is_cpu:
            state[device.torch_type] = torch.get_device_module(device.torch_type).get_rng_state()
        return state

    def restore_random_state(self, device: Device, state: dict) -> None:
        torch.set_rng_state(state["cpu"])
        if not device.is_cpu:
            torch.get_device_module(device.torch_type).set_rng_state(state[device.torch_type])

    def allow_tf32(self, allowed: bool) -> None:
        """Set TF32 for matrix products, convolutions and recurrent layers; by default
        convolutions use it.

        torch has an old and a new version of each switch, its compiler reads both, and until
        2.11 an old one cannot be read after the new one was set. The two functions used here
        keep all of them readable.

        Source: https://docs.pytorch.org/docs/stable/notes/cuda.html (TensorFloat-32)
        """
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        torch.backends.cudnn.allow_tf32 = allowed

    def num_threads(self) -> int:
        return torch.get_num_threads()

    def facts(self) -> dict[str, str]:
        blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
        return {
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "blas": blas[1] if blas else "",
            "threads": str(torch.get_num_threads()),
        }

    def fell_back(self, warning: str) -> str:
        """See `Backend.fell_back`; torch warns of the first such operation of a process alone.

        Source: aten/src/ATen/mps/MPSFallback.mm
        """
        named = re.search(
            "operator '(.+)' is not currently supported on the MPS backend and will fall", warning
        )
        return named[1] if named else ""

    def multiplication(
        self, device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str
    ) -> Operation:
        left, right = (self._placed(device, part, dtype) for part in (first, second))
        product = left.new_empty(*left.shape[:-1], right.shape[-1])
        return lambda previous: torch.matmul(left, right, out=product)

    def operation(
        self, device: Device, function: Callable, *host: numpy.ndarray, dtype: str = "float32"
    ) -> Operation:
        placed = [self._placed(device, part.copy(), dtype) for part in host]
        return lambda previous: function(*placed)

    def _placed(self, device: Device, host: numpy.ndarray, dtype: str = "float32") -> Any:
        return torch.from_numpy(host).to(device.torch_type, getattr(torch, dtype))

    def convolution(
        self, device: Device, images: numpy.ndarray, kernel: numpy.ndarray
    ) -> Operation:
        def convolve(images: Any, kernel: Any) -> Any:
            return F.conv2d(images, kernel, padding="same").permute(0, 2, 3, 1)

        return self.operation(
            device, convolve, images.transpose(0, 3, 1, 2), kernel.transpose(3, 2, 0, 1)
        )

    def attention(self, device: Device, *host: numpy.ndarray) -> Operation:
        return self.operation(device, F.scaled_dot_product_attention, *host)

    def to_host(self, output: Any) -> numpy.ndarray:
        return output.cpu().numpy()

    def copy(self, device: Device, host: numpy.ndarray) -> Operation:
        source = self._placed(device, host)
        target = torch.zeros_like(source)
        return lambda previous: target.copy_(source)

    def host_to_device(self, device: Device, host: numpy.ndarray) -> Operation:
        source = torch.from_numpy(host)
        source = source.pin_memory() if device.features.pins_memory else source
        target = torch.empty_like(source, device=device.torch_type)
        return lambda previous: target.copy_(source, non_blocking=True)

    def device_to_host(self, device: Device, host: numpy.ndarray) -> Operation:
        source = self._placed(device, host)
        target = torch.zeros(source.shape, pin_memory=device.features.pins_memory)
        return lambda previous: target.copy_(source, non_blocking=True)

    def launch(self, device: Device) -> Operation:
        number = torch.zeros(1, device=device.torch_type)
        return lambda previous: number.add_(1)


def _kind(device: Any) -> str:
    return "rocm" if device.type == "cuda" and torch.version.hip else device.type


BACKEND = TorchBackend()
