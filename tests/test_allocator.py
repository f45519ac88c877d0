"""What the real C library does with freed memory, in fresh processes; and on which devices it is
asked to keep it."""

import ctypes
import os
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from benchbook.frameworks import allocator
from benchbook.frameworks.devices import Device

GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the switch is glibc's")
# A step fills 14 arrays of 3 MB and one of 48 MB, and frees them.
STEPS = """
import resource, sys
from benchbook.frameworks import allocator
from benchbook.frameworks.devices import Device

def faults_of_a_step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [bytearray(megabytes * 2**20) for megabytes in [3] * 14 + [48]]
    del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

for _ in range(3):
    faults_of_a_step()
if "keep" in sys.argv:
    allocator.keep_memory(Device("cpu", "a processor"))
    faults_of_a_step()
print(max(faults_of_a_step() for _ in range(3)) * resource.getpagesize())
"""


def bytes_requested(*words: str, **variables: str) -> int:
    """Return the most bytes that a later step requests from the system, in a new process."""
    command = [sys.executable, "-c", STEPS, *words]
    return int(
        subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | variables
        ).stdout
    )


@GLIBC
def test_a_process_that_keeps_its_memory_requests_none_again():
    assert bytes_requested() > 80 * 2**20
    assert bytes_requested("keep") < 2**20
    assert bytes_requested(**allocator.ENVIRONMENT) < 2**20


@pytest.mark.parametrize(
    ("device", "library", "can"),
    [
        (Device("cpu", "a processor"), ("glibc", "2.36"), True),
        (
            Device("cpu", "a processor"),
            ("", ""),
            False,
        ),  # macOS, and musl, where CPython finds no version
        (Device("cpu", "a processor"), ("musl", "1.2.5"), False),
        (Device("cpu", "a processor", "tensorflow"), ("glibc", "2.36"), False),
        (Device("cuda", "a GPU"), ("glibc", "2.36"), False),
    ],
)
def test_memory_is_kept_where_steps_free_it_to_a_library_with_the_switch(
    monkeypatch, device, library, can
):
    calls, answer = [], 1

    def mallopt(*given):
        calls.append(given)
        return answer

    monkeypatch.setattr(platform, "libc_ver", lambda: library)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    monkeypatch.setattr(os, "environ", {})
    assert allocator.keep_memory(device) is can
    assert (dict(calls), os.environ) == (
        (allocator.MALLOPT_VALUES, allocator.ENVIRONMENT) if can else ({}, {})
    )
    if can:
        answer = 0  # an error, as mallopt(3) has it
        with pytest.raises(OSError, match="refused"):
            allocator.keep_memory(device)
