"""An accelerator of torch that is not there: its tensors have a device of their own and compute
on the CPU.

Made of torch's own extension points: the device that is kept for other people's backends
(privateuse1), a wrapper tensor that sees every operation, and a function mode that takes `cuda`,
`mps` or `xpu` for that device. It is as strict as the real ones: devices do not mix, MPS has no
float64, a generator must be of the device, and what would make the host wait for the device is
written down. Autocast, the compiler and fused kernels are out of its reach.

It registers itself for the whole process, so it is for a process of its own.

Source: torch.utils.backend_registration._setup_privateuseone_for_python_backend (torch 2.10)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from benchbook.machine.kinds import KINDS

NAME = "impostor"
aten = torch.ops.aten

# What returns a number, or a shape, that depends on what the device computed: the host waits for
# it.
WAITING = {
    aten._local_scalar_dense,
    aten.nonzero,
    aten.masked_select,
    aten.equal,
    aten._unique2,
    aten.unique_consecutive,
    aten.repeat_interleave.Tensor.overloadpacket,
}
MOVING = {aten._to_copy, aten.copy_, aten._copy_from, aten.copy}


class Impostor(torch.Tensor):
    """A tensor of the device; `held` is where its numbers really are.

    Attributes:
        waits: the operations since it was cleared that made the host wait.
        kind: torch's type, cuda, mps or xpu, whose rules hold.
        used: the operations since the process began.
        generators: of the device, by torch's own address of each.
    """

    waits: list[str] = []  # noqa: RUF012 (one device, one list)
    used: set[str] = set()  # noqa: RUF012
    kind = "cuda"
    generators: dict[int, torch.Generator] = {}  # noqa: RUF012

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "Impostor":
        if held.dtype == torch.float64 and Impostor.kind == "mps":
            raise TypeError(
                "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64"
            )
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=torch.device(NAME, 0),
        )
        made.held = held.detach()
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self) -> str:
        return f"Impostor({self.held!r})"

    @classmethod
    def __torch_dispatch__(cls, operation, types, arguments=(), named=None):
        return compute(operation, arguments, named or {})


def compute(operation, arguments: tuple, named: dict):
    """Run an operation on the CPU, as the device would or would not."""
    packet, flat = operation.overloadpacket, tree_flatten((arguments, named))[0]
    Impostor.used.add(str(operation).removeprefix("aten."))
    own = [part for part in flat if isinstance(part, Impostor)]
    strangers = [
        part for part in flat if isinstance(part, torch.Tensor) and not isinstance(part, Impostor)
    ]
    if packet not in MOVING:
        _refuse_strangers(operation, strangers)
        _refuse_generators(operation, flat)
    _note_waiting(operation, arguments, named, strangers)
    goal = named.get("device")
    here = goal is None or torch.device(goal).type == NAME
    if goal is not None and here:
        named = named | {"device": torch.device("cpu")}
    held_arguments, held_named = tree_map_only(Impostor, lambda part: part.held, (arguments, named))
    results = operation(*held_arguments, **held_named)
    if packet in (aten.copy_, aten._copy_from) and not isinstance(arguments[0], Impostor):
        return results  # into a tensor of the host's
    if not here:
        return results
    by_held = {id(part.held): part for part in own}
    return tree_map_only(
        torch.Tensor,
        lambda part: by_held[id(part)] if id(part) in by_held else Impostor(part),
        results,
    )


def _refuse_strangers(operation, strangers: list[torch.Tensor]) -> None:
    """Refuse tensors of the host's, but for single numbers where each element is computed by
    itself, and indices."""
    allowed = torch.Tag.pointwise in operation.tags
    if operation.overloadpacket in (
        aten.index,
        aten.index_put,
        aten.index_put_,
        aten._index_put_impl_,
    ):
        strangers = [part for part in strangers if part.is_floating_point()]
    mixed = [part for part in strangers if part.dim() or not allowed]
    if mixed:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {Impostor.kind}:0 and cpu!"
            f" (in {operation})"
        )


def _refuse_generators(operation, flat: list) -> None:
    for part in flat:
        if isinstance(part, _CPU_GENERATOR) and part._cdata not in Impostor.generators:
            raise RuntimeError(
                f"Expected a '{Impostor.kind}' device type for generator but found 'cpu' (in {operation})"
            )


def _note_waiting(operation, arguments: tuple, named: dict, strangers: list[torch.Tensor]) -> None:
    packet = operation.overloadpacket
    to_host = (
        packet is aten._to_copy
        and named.get("device") is not None
        and torch.device(named["device"]).type != NAME
    )
    to_host |= packet in (aten.copy_, aten._copy_from) and not isinstance(arguments[0], Impostor)
    from_host = (
        packet in (aten.copy_, aten._copy_from)
        and bool(strangers)
        and isinstance(arguments[0], Impostor)
    )
    # A number of the host's is an argument of the kernel; a whole tensor is sent, and unless it is
    # pinned, waited for.
    from_host = from_host and not (
        named.get("non_blocking") or (len(arguments) > 2 and arguments[2])
    )
    by_mask = packet in (aten.index, aten.index_put_, aten._index_put_impl_) and any(
        part is not None and part.dtype in (torch.bool, torch.uint8) for part in arguments[1]
    )
    if packet in WAITING or to_host or from_host or by_mask:
        Impostor.waits.append(str(operation))


def register(kind: str) -> None:
    """Make the device known to torch, under the rules of a kind of device."""
    Impostor.kind = KINDS[kind].torch_type or kind
    _setup_privateuseone_for_python_backend(NAME)
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    register.library = library  # what it registers goes when it goes


def _empty(
    size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None
) -> Impostor:
    return Impostor(
        torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format)
    )


def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None) -> Impostor:
    return Impostor(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(
    source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    """Copy where torch's own code does not ask the wrapper, as for indices that it makes of an
    array."""
    here, there = (part.held if isinstance(part, Impostor) else part for part in (source, target))
    there.copy_(here)
    return target


class Taken(TorchFunctionMode):
    """Takes the name of a kind for the impostor's, wherever a function of torch is given a
    device."""

    def __torch_function__(self, function, types, arguments=(), named=None):
        if function is torch.Tensor.pin_memory:
            return arguments[0]
        if function is torch.Tensor.tolist and isinstance(arguments[0], Impostor):
            return arguments[0].cpu().tolist()  # torch itself does so, but not for a wrapper
        arguments = tuple(_renamed(part) for part in arguments)
        return function(
            *arguments, **{name: _renamed(part) for name, part in (named or {}).items()}
        )


def _renamed(part):
    if isinstance(part, str) and part.partition(":")[0] == Impostor.kind:
        return NAME
    return (
        torch.device(NAME, 0)
        if isinstance(part, torch.device) and part.type == Impostor.kind
        else part
    )


_CPU_GENERATOR = torch.Generator


class Generator(torch.Generator):
    """A generator of the impostor's, which draws on the CPU."""

    def __new__(cls, device="cpu"):
        made = _CPU_GENERATOR.__new__(_CPU_GENERATOR)
        if _renamed(device) == NAME or str(_renamed(device)).startswith(NAME):
            Impostor.generators[made._cdata] = made
        return made


@contextmanager
def present(monkeypatch, hip: str | None = None) -> Iterator[None]:
    """Let torch have the impostor as its accelerator inside a `with` block; `hip` is ROCm's
    version."""
    kind, named = (
        Impostor.kind,
        torch.device(Impostor.kind),
    )  # later, the function mode would take it for the impostor
    module = SimpleNamespace(
        get_rng_state=torch.get_rng_state,
        set_rng_state=torch.set_rng_state,
        device_count=lambda: 1,
        get_device_name=lambda index: f"an impostor of {kind}",
    )
    real_module = torch.get_device_module
    monkeypatch.setattr(
        torch,
        "get_device_module",
        lambda asked=None: module if asked == kind else real_module(asked),
    )
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda check_available=False: named
    )
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device=None: None)
    monkeypatch.setattr(torch.accelerator, "max_memory_allocated", lambda device=None: 1)
    monkeypatch.setattr(torch.accelerator, "reset_peak_memory_stats", lambda device=None: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device=None: 1)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device=None: None)
    monkeypatch.setattr(torch, "Generator", Generator)
    # A real device's tensors take a parameter's place in it; a wrapper must be swapped with it.
    swapped = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with Taken():
            yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swapped)
