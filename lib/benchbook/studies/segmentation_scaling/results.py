"""What the segmentation study says: milliseconds an image, masks, minutes without a pause."""

from benchbook.judging import wording
from benchbook.studies import findings
from benchbook.studies.prediction_charts import core_pairs, cores_title
from benchbook.studies.segmentation_scaling import charts, tables
from benchbook.studies.segmentation_scaling.network import ARTICLE_SIZE
from benchbook.studies.segmentation_scaling.tables import NAME, NUM_IMAGES
from benchbook.studies.study import Chart, Evidence, Rule, Study


def finding(evidence: Evidence) -> str:
    """Return what an image takes in the article's network, and how far its rule for bigger chips is off."""
    times = tables.image_times(evidence)
    own = times[(times["note"] == "") & times["ms_per_image"].notna() & times["status"].eq("ok")]
    rule = f"{cores_title(core_pairs(evidence))}."
    if own.empty:
        return f"{charts.times_title(times, evidence.names)}. {rule}"
    best = findings.fastest(own, "ms_per_image", least=True)
    place, hedge = findings.place(evidence, best, own), findings.hedged(evidence, [best])
    seconds, whole = wording.duration(best["ms_per_image"] / 1e3), wording.duration(best["hours"] * 3600)
    images = f"the article's {NUM_IMAGES:,} would take {whole}"
    return f"An image of {ARTICLE_SIZE} pixels takes {seconds} to train on {place}{hedge}; {images}. {rule}"


STUDY = Study(
    name=NAME,
    title="Segmentation",
    article="Takashi Shirakawa, 2021",
    charts=(
        Chart(
            "segmentation-times",
            "Milliseconds an image",
            "The article's code was not released, so that its figures, in grey, are of other work than the bars in"
            " colour.",
            charts.times,
        ),
        Chart(
            "segmentation-masks",
            "Masks over images, before training and after",
            "The first validation images of the newest run of each machine and point, as its manifest keeps them; the"
            " best point is drawn.",
            charts.masks,
        ),
        Chart(
            "sustained",
            "Minutes without a pause",
            "The first minute beside the last: a machine without a fan slows down as it warms up.",
            charts.minutes,
        ),
    ),
    finding=finding,
    published=(Rule("accelerator_seconds_per_image", "seconds", "device != 'cpu' and samples == 1"),),
)
