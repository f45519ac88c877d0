"""Predictions as tables for the report: our studies on chips that nobody ran them on, and what was refused."""

import pandas

from benchbook.machine import layout
from benchbook.record import chips, observations
from benchbook.record.forecast import Forecaster, Question, of_the_record
from benchbook.record.observations import Unknown
from benchbook.rows import records
from benchbook.studies.study import Evidence, once

# What our studies train, as the record is asked for it: work, precision, side of the images.
WORKS = (
    ("resnet50_cost", "amp_fp16", 224),
    ("resnet50_cost", "fp32", 224),
    ("mobilenetv2_energy", "fp32", 128),
    ("simclr_epochs", "fp32", 32),
    ("segmentation_scaling", "fp32", 512),
    ("mnist_speedup", "fp32", None),
    ("vae_stability", "fp32", None),
)
COLUMNS = ["study", "work", "chip", "precision", "predicted", "low", "high", "basis", "reason"]


@once
def learn(evidence: Evidence) -> Forecaster:
    """Return what the record and the measured rows say together."""
    own = observations.of_points(evidence.summary, evidence.ceilings)
    return Forecaster(own) if len(own) else of_the_record()


def learn_here() -> Forecaster:
    """Return what the record says together with the rows that were measured here, if there are any."""
    folder = layout.outputs() / "runs"
    rows = records.gather(records.find(folder)) if folder.exists() else pandas.DataFrame()
    return learn(Evidence(rows)) if len(rows) else of_the_record()


def predictions(forecaster: Forecaster) -> pandas.DataFrame:
    """Return a line for each of our studies on each chip: rate with its interval and basis, or why there is none.

    Returns:
        Columns: study, work (its name, side and precision), chip, precision, predicted, low, high (images a second,
        90 %), basis, reason.
    """
    lines = []
    for study, precision, size in WORKS:
        for chip in chips.SHOWN:
            of = f"{study}, {size} px, {precision}" if size else f"{study}, {precision}"
            line = {"study": study, "work": of, "chip": chips.resolve(chip), "precision": precision}
            try:
                rate = forecaster.rate(Question(chip=chip, work=study, precision=precision, image_size=size))
                lines.append(line | {"predicted": rate.value, "low": rate.low, "high": rate.high, "basis": rate.basis})
            except Unknown as reason:
                lines.append(line | {"reason": str(reason)})
    return pandas.DataFrame(lines, columns=COLUMNS)
