"""What the real C library does with freed memory, in fresh processes."""

import os
import platform
import subprocess
import sys

import pytest

from benchbook.machine.kinds import KINDS

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the variables are glibc's"
)
# A step fills 14 arrays of 3 MB and one of 48 MB, and frees them; in a thread, as frameworks do.
STEPS = """
import resource, threading
from benchbook.machine import kinds

def step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [bytearray(megabytes * 2**20) for megabytes in [3] * 14 + [48]]
    del arrays
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

faults = []
for make in [lambda target: target(), lambda target: (t := threading.Thread(target=target)).start() or t.join()]:
    for _ in range(6):
        make(step)
print(max(faults[3:6] + faults[9:]) * resource.getpagesize(), kinds.keeps_memory())
"""


def bytes_requested(**variables: str) -> tuple[int, bool]:
    """Return the most bytes that a later step requests from the system, in a new process, and
    whether it says that it keeps them."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")
    }
    words = subprocess.run(
        [sys.executable, "-c", STEPS],
        capture_output=True,
        text=True,
        check=True,
        env=environment | variables,
    ).stdout.split()
    return int(words[0]), words[1] == "True"


def test_a_process_on_the_cpu_keeps_its_memory_and_requests_none_again():
    requested, keeps = bytes_requested()
    assert requested > 80 * 2**20
    assert not keeps
    requested, keeps = bytes_requested(**KINDS["cpu"].environment)
    assert requested < 2**20
    assert keeps
