"""Rows of every study's points, as its notebook writes them: for the contract of all studies,
and for their numbers."""

import functools
import json
import re

import pandas
import yaml

from benchbook.record import articles
from benchbook.studies.results.evidence import Evidence
from made.rows import make_row, make_rows

CODE = re.compile(r"(?!price_per_hour)\b[a-z]\w*_\w+|^[A-Z][a-z]*\d+ |\bNaN\b|\ba \d+ x ")
NOTHING = dict.fromkeys(("samples", "seconds", "input_seconds", "samples_per_second"))
# What a point of a study has, unless a test says otherwise.
OWN = yaml.safe_load("""
mnist_speedup: {dataset: mnist, batch_size: 64}
vae_stability: {model: vae, dataset: mnist, batch_size: 128, precision: fp32}
mobilenetv2_energy: {framework: tensorflow, dataset: cifar10, dataset_samples: 50000, image_size: 128,
  settings: {trainable: false, learning_rate: 0.0005, weights: imagenet}}
simclr_epochs: {dataset: cifar10, dataset_samples: 50000, batch_size: 128, precision: fp32, compiled: false,
  settings: {seed: 0}, accuracy_metric: knn}
segmentation_scaling: {framework: tensorflow, dataset: triangles-512px, dataset_samples: 500, batch_size: 16,
  image_size: 512, precision: fp32, compiled: false, settings: {width: 1.0}, peak_memory_bytes: 3221225472}
resnet50_cost: {model: resnet50, dataset: synthetic, image_size: 224, precision: fp32, device_count: 1,
  flops_per_sample: 1.0e+9}
gpt_tokens: {model: gpt2_124m, parameters: 124439808, dataset: synthetic, dataset_samples: null,
  sequence_length: 1024, batch_size: 4, precision: fp32}
""")


def point(
    study,
    rates=(1000.0, 1200.0, 1600.0),
    *,
    settings=None,
    ended=None,
    test=True,
    losses=(2.0, 1.0, 0.5),
    accuracy=0.6,
    **columns,
):
    """Return the rows of a run: set-up, first call, warm-up, windows, a test; or windows and how
    it failed.

    Args:
        study: its name.
        rates: a window of 640 images in 2 seconds each; its samples are columns as any.
        settings: added to those of OWN.
        ended: the status of a last row that measured nothing.
        test: whether there is an evaluation: of 5,000 images a second, and this accuracy.
        losses: of the windows; the last one of all that follow.
        columns: of all rows.
    """
    own = (
        {"study": study, "machine": "desk", "device": "cpu", "variant": "reference"}
        | OWN.get(study, {})
        | columns
    )
    settings = OWN.get(study, {}).get("settings", {}) | (settings or {})
    told = [
        "variant",
        "device",
        "framework",
        "dataset",
        "batch_size",
        "image_size",
        "device_count",
        "model",
    ]
    told += ["precision"]
    name = "-".join(str(part) for part in (*(own.get(column) for column in told), settings))
    named = {
        "point": name,
        "run_id": f"{own['machine']}-{name}",
        "session": f"{own['machine']}-{name}",
    }
    common = named | own | {"settings": json.dumps(settings)}
    rows = [
        make_row(
            **common
            | {"phase": "setup", "seconds": 0.25}
            | dict.fromkeys(("samples", "samples_per_second"))
        )
    ]
    rows += [make_row(**common | {"phase": "compile", "seconds": 1.5, "samples_per_second": 40.0})]
    rows += [make_row(**common | {"phase": "warmup", "seconds": 100.0, "samples_per_second": 1.0})]
    for index, rate in enumerate(rates):
        window = {"index": index, "epoch": 1, "samples_per_second": float(rate)}
        rows.append(make_row(**common | {"loss": losses[min(index, len(losses) - 1)]} | window))
    if ended:
        rows.append(
            make_row(
                **common
                | NOTHING
                | {"phase": "warmup", "index": 9, "status": ended, "message": "planted"}
            )
        )
    elif test:
        tested = {"phase": "evaluate", "samples": 1000, "samples_per_second": 5000.0}
        rows.append(make_row(**common | {"accuracy": accuracy} | tested | {"epoch": 1}))
    return rows


def tried(row, what, rates, **columns):
    """Return windows of what a run tried besides its training: resident batches, the matrix."""
    settings = json.loads(row["settings"]) | {"tried": what}
    common = row | {"phase": "calibrate", "settings": json.dumps(settings)} | columns
    return [
        common | {"index": 20 + index, "samples_per_second": float(rate)}
        for index, rate in enumerate(rates)
    ]


def steps(errors, **columns):
    """Return the autoencoder's steps that were compared with float64, at these relative errors
    of the loss."""
    common = point("vae_stability", **columns)[0] | {
        "phase": "parity",
        "samples": 128,
        "seconds": None,
    }
    agreed = dict.fromkeys(
        ("gradient_cosine", "gradient_norm_ratio", "worst_cosine", "worst_norm_ratio"), 1.0
    )
    return [
        common
        | {
            "index": index,
            "loss": 500.0 * (1 + error),
            "status": "ok" if error == error else "diverged",
        }
        | {"settings": json.dumps(agreed | {"step": index + 1, "reference_loss": 500.0})}
        for index, error in enumerate(errors)
    ]


def calibration(rate=4e12, session="calibrated", model="matmul", **columns):
    """Return a ceiling's window: a rate of operations of one FLOP, or of one byte where the
    model is a copy."""
    work = (
        {"flops_per_sample": 1.0, "precision": "fp32"}
        if model == "matmul"
        else {"bytes_per_sample": 1.0}
    )
    named = dict.fromkeys(("point", "run_id"), f"{model}-{session}-{rate:g}")
    row = {
        "study": "calibrate",
        "phase": "calibrate",
        "model": model,
        "session": session,
        "batch_size": 64,
    }
    return make_row(**row | named | work | {"samples_per_second": rate} | columns)


def matrix(row):
    """Return the windows of a support matrix: fp32, one precision that works, and one that does
    not."""
    cells = [
        *tried(row, "matrix", (10.0, 20.0)),
        *tried(row, "matrix", (45.0,), precision="amp_bf16"),
    ]
    refused = {"precision": "amp_fp16", "status": "unsupported", "message": "no half"}
    return [
        *cells,
        *tried(row | refused, "matrix", (0,)),
        *tried(row, "matrix", (30.0,), compiled=True),
    ]


# What a machine has of every study, and of one, besides its first point: see `point`. Rates that are
# `relative` are of the slower machine.
MORE = yaml.safe_load("""
every:
- {relative: [2000.0], variant: tuned, settings: {chosen: tuned}}
- {rates: [], ended: out_of_memory, batch_size: 512}
mnist_speedup:
- {variant: controlled}
- &resident {relative: [2500.0], variant: controlled, settings: {data_resident: true}}
- {<<: *resident, relative: [3200.0], batch_size: 256}
vae_stability:
- {relative: [1000.0], losses: [.nan], dataset: digits-28px}
mobilenetv2_energy:
- {settings: {trainable: true}, framework: torch, losses: [2.0, 1.5, 1.0],
   <<: &energy {energy_joules: 50.0, energy_method: nvml, energy_boundary: board}}
- {rates: [], ended: crashed, image_size: 224}
simclr_epochs: []
segmentation_scaling:
- {rates: [0.3, 0.3, 0.3, 0.2], test: false, samples: 9, seconds: 30.0, variant: tuned,
   settings: {sustained_minutes: 1.0}}
resnet50_cost:
- {<<: *energy, settings: &stated {price_per_hour: 3.6, electricity_per_kwh: 0.3}, batch_size: 128}
- &four {relative: [2000.0, 2400.0], settings: *stated, dataset: synthetic, batch_size: 256, device_count: 4}
- {<<: *four, batch_size: 128}
- {<<: *four, relative: [1000.0, 1200.0], batch_size: 128, device_count: 2}
- {<<: *four, dataset: imagenet, batch_size: 1024}
gpt_tokens:
- {settings: {ladder: ""}, variant: controlled}
- {relative: [2000.0, 2400.0, 3200.0], settings: {ladder: tf32}, precision: tf32, variant: controlled}
- &text {<<: *energy, relative: [1000.0], model: nanogpt_char_small, parameters: 804096, dataset: tinyshakespeare,
   steps: 250, sequence_length: 64, batch_size: 4}
- {<<: *text, relative: [1000.0, 1200.0, 1600.0], batch_size: 12}
other:
- {rates: [8.0, 9.0], batch_size: 4}
- {rates: [12.0], batch_size: 64}
""")


def machine(study, name="desk", device="cpu", faster=1.0):
    """Return the rows of one machine in one study: every path to its charts that a machine can
    take."""
    place = {"machine": name, "device": device, "chip": f"Chip {name}"}

    def measured(study=study, rates=None, relative=(1000.0, 1200.0, 1600.0), **columns):
        rates = [faster * rate for rate in relative] if rates is None else rates
        return point(study, rates, **columns, **place)

    if study == "calibrate":
        work = {"flops_per_sample": 1e6, "precision": "fp32", "session": "calibrated"}
        own = ({"rate": 4e9 * faster}, {"rate": 9e9, "precision": "bf16"})
        own = [*own, {"rate": 2e10, "model": "copy"}]
        return [*(calibration(**each, **place) for each in own), *measured("mnist_speedup", **work)]
    first = measured()
    every, own = (
        [row for each in MORE[name] for row in measured(**each)]
        for name in ("every", study if study in MORE else "other")
    )
    for row in own:
        if row["model"] == "nanogpt_char_small" and row["phase"] == "evaluate":
            row["loss"] = 1.8
    if study == "vae_stability":
        own += steps([0.0, 1e-5], **place)
    if study == "simclr_epochs":
        own += tried(first[0], "resident", (faster * 2000,)) + matrix(first[0])
    if study == "resnet50_cost":
        own += [calibration(4e12, row["session"], **place) for row in (first[0], own[0], own[-1])]
    if study not in MORE:
        own += tried(first[0], "resident", (faster * 2500,))
    return [*first, *every, *own]


@functools.cache
def published_rows():
    return articles.rows()


def evidence(*parts, published=False, **more):
    """Return the evidence of these lists of rows, with what articles printed where `published`."""
    rows = make_rows([row for part in parts for row in part])
    return Evidence(
        pandas.concat([rows, published_rows()], ignore_index=True) if published else rows, **more
    )


def is_short(sentence: str) -> bool:
    """Return whether a sentence has at most forty words, and none of code."""
    return len(sentence.split()) <= 40 and not CODE.search(sentence)


# A CPU, and a machine with a CPU and a GPU.
PLACES = {"nothing": (), "one machine": (("desk", "cpu", 0.5),)}
PLACES |= {"two machines": (*PLACES["one machine"], ("attic", "cpu", 1.0), ("attic", "cuda", 4.0))}


@functools.cache
def given(study, rows="two machines", published=False):
    """Return the evidence of a study from these PLACES."""
    return evidence(*(machine(study, *place) for place in PLACES[rows]), published=published)
