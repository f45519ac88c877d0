"""Executed examples of the notebooks, in outputs/examples, for readers who run nothing: `make examples`.

A study's notebook runs as in JupyterLab, with its loop and Explore, and measures this computer for about a minute; its
rows are not kept. The aggregation shows the rows in outputs/runs.
"""

import base64
import io
import os
import sys
from pathlib import Path

import nbformat
from PIL import Image

from benchbook.machine import layout, temporary
from benchbook.report import cleaning
from benchbook.running import kernel

COLOURS = 32  # of a picture, for GitHub shows no large notebook; charts have few
BUDGET = {"num_processes": 2, "num_windows": 3}
PARAMETERS = {
    "calibrate": {"budget": {"num_processes": 2, "matrix_sizes": "512 1024 2048", "copy_mebibytes": 64}},
    "mnist_speedup": {"budget": BUDGET | {"samples_per_window": 3200, "num_test_images": 2000}},
    "vae_stability": {"budget": BUDGET | {"samples_per_window": 6400, "num_parity_steps": 5}},
    "mobilenetv2_energy": {
        "framework": "torch", "dataset": "shapes", "weights": "random", "trainable": True, "image_size": 64,
        "batch_size": 16,
        "budget": BUDGET | {"samples_per_window": 64, "num_test_images": 100, "num_warmup_steps": 2},
    },
    "simclr_epochs": {
        "dataset": "shapes", "batch_size": 8,
        "budget": BUDGET | {"samples_per_window": 16, "num_bank_images": 100, "num_test_images": 50,
                            "num_warmup_steps": 1, "num_parity_steps": 2, "parity_batch_size": 4},
    },
    "segmentation_scaling": {
        "image_size": 128, "width": 0.25, "batch_size": 4,
        "budget": BUDGET | {"num_images": 24, "num_test_images": 8},
    },
    "resnet50_cost": {
        "framework": "torch", "batch_size": 8, "image_size": 64,
        "budget": BUDGET | {"samples_per_window": 32, "num_warmup_steps": 2, "parity_batch_size": 4},
    },
    "your_network": {
        "network": "torchvision.models:shufflenet_v2_x1_0", "image_size": 64, "batch_size": 16,
        "budget": BUDGET,
    },
    "gpt_tokens": {"dataset": "excerpt", "budget": BUDGET | {"samples_per_window": 240, "num_test_sequences": 40}},
}  # fmt: skip


def write(study: str) -> Path:
    """Execute a study's notebook, write it without this computer's folders into outputs/examples; return its path."""
    source = layout.notebook(study)
    target = layout.root() / "outputs" / "examples" / source.name
    with temporary.folder() as folder:
        if study in PARAMETERS:  # see `notebook.is_attended`
            os.environ |= {"JPY_SESSION_NAME": "example", "BENCHBOOK_OUTPUTS": str(folder)}
        executed = folder / source.name
        kernel.execute(source, executed, PARAMETERS.get(study, {}))
        notebook = cleaning.read(executed)
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        if "image/png" in output.get("data", {}):
            output.data["image/png"] = _fewer_colours(output.data["image/png"])
    for count, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell.execution_count = count
    target.parent.mkdir(exist_ok=True)
    target.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    return target


def _fewer_colours(picture: str) -> str:
    """Return a PNG, in base64, with COLOURS colours."""
    image, file = Image.open(io.BytesIO(base64.b64decode(picture))), io.BytesIO()
    image.convert("RGB").quantize(COLOURS).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


if __name__ == "__main__":
    # The aggregation first: what runs after it has outputs of its own.
    for name in sorted(sys.argv[1:] or layout.notebooks(), key=PARAMETERS.__contains__):
        print(write(name).relative_to(layout.root()), flush=True)
