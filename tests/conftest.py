"""What holds for all tests: those that run side by side compute on one core each, and the longest files start first."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    # Before torch is imported: the threads of several workers would wait for each other.
    os.environ["OMP_NUM_THREADS"] = "1"


def pytest_collection_modifyitems(items):
    long = {item.path for item in items if item.get_closest_marker("notebook")}
    items.sort(key=lambda item: item.path not in long)
