"""The C library's allocator: glibc may return freed memory to the system, and the next step then
requests it again."""

import ctypes
import os
import platform

from benchbook.frameworks.devices import Device
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.machine.variables import KEEPS_MEMORY

# Any number of bytes may stay free at the end of the heap (-1), and no large block gets pages of
# its own (0): those would go back to the system with the block. Sources: mallopt(3) for the
# meaning, glibc's malloc.h for the numbers.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
MALLOPT_VALUES = {M_TRIM_THRESHOLD: -1, M_MMAP_MAX: 0}
ENVIRONMENT = KEEPS_MEMORY  # the same for child processes


def can_keep(kind: str, framework: str) -> bool:
    """Return whether a process can keep freed memory.

    It cannot where the framework does not allocate from the C library on this kind of device,
    nor with macOS and musl, which have no such switch.
    """
    return (
        kind == "cpu"
        and FRAMEWORKS[framework].frees_to_system
        and platform.libc_ver()[0] == "glibc"
    )


def keep_memory(device: Device) -> bool:
    """Keep freed memory in this process and in those that it starts, until they end; return
    whether that is possible.

    It cannot be undone: glibc forgets what it has learnt from blocks freed before.

    Raises:
        OSError: the C library refuses.
    """
    if not can_keep(device.kind, device.framework):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, value in MALLOPT_VALUES.items():
        if mallopt(parameter, value) != 1:
            raise OSError(f"glibc refused mallopt({parameter}, {value})")
    os.environ |= ENVIRONMENT
    return True
