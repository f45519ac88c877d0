"""What the segmentation study says: milliseconds an image, masks, minutes without a pause."""

from benchbook.studies.segmentation_scaling import charts
from benchbook.studies.segmentation_scaling.tables import NAME
from benchbook.study import Chart, Rule, Study

STUDY = Study(
    name=NAME,
    title="Segmentation",
    article="Takashi Shirakawa, 2021",
    charts=(
        Chart(
            "segmentation-times",
            "Milliseconds an image",
            "The article's figures came from code that was not released: they are grey, and compared with nothing.",
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
            "The first minute and the last: a machine without a fan is not what its first seconds say.",
            charts.minutes,
        ),
    ),
    published=(Rule("accelerator_seconds_per_image", "seconds", "device != 'cpu' and samples == 1"),),
)
