"""What holds for all tests: those that run side by side compute on one core each."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    # Before torch is imported: the threads of several workers would wait for each other.
    os.environ["OMP_NUM_THREADS"] = "1"
