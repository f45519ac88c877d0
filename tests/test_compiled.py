"""Training steps and calibration compile for chips that are not here; benchmarks/compiled.py has
the table of TPUs."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pandas
import pytest

from benchbook.machine import layout
from benchbook.record import chips
from benchbook.rows import networks
from made.processes import needs

SCRIPT = layout.root() / "benchmarks" / "compiled.py"
LOCKED = re.search(
    r"^libtpu==(\S+)", (layout.root() / "requirements" / "tpu.txt").read_text(), re.MULTILINE
)[1]


def has(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None, reason=f"{package} is not installed"
    )


@pytest.mark.parametrize(
    ("target", "work", "precision", "size", "gigabytes"),
    [
        *(
            pytest.param("v100", "calibrate", name, 512, 0.1, marks=has("jax_cuda12_plugin"))
            for name in ("fp32", "bf16")
        ),
        pytest.param("v100", "mobilenetv2_energy", "fp32", 64, 1, marks=has("jax_cuda12_plugin")),
        # The article's board and batch, and one chip of today.
        pytest.param(
            "v2-8", "resnet50_cost", "amp_bf16", 1024, 8, marks=[has("libtpu"), pytest.mark.slow]
        ),
        pytest.param(
            "v5e-1", "resnet50_cost", "amp_bf16", 256, 16, marks=[has("libtpu"), pytest.mark.slow]
        ),
    ],
)
@needs("jax")
def test_programs_compile_and_fit_into_the_memory_of_a_chip_that_is_not_here(
    target, work, precision, size, gigabytes
):
    command = [sys.executable, str(SCRIPT), target, work, precision, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr[-3000:]
    line = json.loads(done.stdout.splitlines()[-1])
    assert 0 < line["peak_bytes"] < gigabytes * 2**30


def test_the_largest_batch_of_a_tpu_is_the_largest_that_the_locked_compiler_compiled():
    table = pandas.read_csv(layout.published() / "record" / "compiled.csv")
    assert set(table["source"]) == {f"compiled by libtpu {LOCKED}, not run"}
    assert not table.duplicated(["chip", "batch_size"]).any()
    for chip, lines in table.groupby("chip"):
        fits = lines["peak_bytes"].notna()
        assert fits.any()
        assert lines.loc[fits, "peak_bytes"].is_monotonic_increasing
        [(least, most, by)] = chips.largest_batches(
            networks.describe("resnet50"), chip, "half"
        ).values()
        assert least == most == lines.loc[fits, "batch_size"].max()
        assert by.endswith(f"compiled by libtpu {LOCKED}, not run")
    unknown = set(chips.table().query("vendor == 'Google'")["chip"]) - set(table["chip"])
    assert unknown
    for chip in unknown:  # torch's formula is not a TPU's
        assert chips.largest_batches(networks.describe("resnet50"), chip, "half") == {}
    assert chips.largest_batches(networks.describe("mobilenet_v2"), "Google TPU v5e", "half") == {}
    [(least, most, by)] = chips.largest_batches(
        networks.describe("resnet50"), "NVIDIA T4", "half"
    ).values()
    assert (least < most, by) == (True, "")
