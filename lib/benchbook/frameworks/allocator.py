"""The C library's allocator: glibc may return what a step frees to the system, and the next step asks for it again."""

import ctypes
import os
import platform

from benchbook.frameworks.devices import Device
from benchbook.machine.libraries import FRAMEWORKS

# How many bytes may lie free at the heap's end (-1: any number), and how many large blocks may have pages of their own,
# which are given back with the block. Source: mallopt(3) for what they mean, glibc's malloc.h for their numbers.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
KEEPING = {M_TRIM_THRESHOLD: -1, M_MMAP_MAX: 0}
INHERITED = {"MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_MMAP_MAX_": "0"}  # the same for processes that begin


def keep_memory(device: Device) -> bool:
    """Keep freed memory in this process, until it ends, and in those that it starts; return whether that can be.

    It cannot where the framework's memory on this device is not the C library's, nor with macOS and musl, which have no
    such switch. glibc cannot be told to go back: what it had learnt of blocks freed before is lost.

    Raises:
        OSError: the C library refuses.
    """
    frees = device.is_cpu and FRAMEWORKS[device.framework].frees_to_system
    if not frees or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, value in KEEPING.items():
        if mallopt(parameter, value) != 1:
            raise OSError(f"mallopt({parameter}, {value}) was refused; allowed: a C library that takes it, as glibc")
    os.environ |= INHERITED
    return True
