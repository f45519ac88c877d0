"""What the MobileNetV2 study says: images a second, joules an image, what is learnt, and what breaks."""

from benchbook.studies.mobilenetv2_energy import charts, tables
from benchbook.study import Chart, Rule, Study

STUDY = Study(
    name=tables.NAME,
    title="MobileNetV2",
    article="Chris Van Pelt, Weights & Biases, 2021",
    charts=(
        Chart(
            "mobilenetv2-settings",
            "Images a second and joules an image",
            "Every setting, framework beside framework; a cross where it failed, and the published ones in grey.",
            charts.settings,
        ),
        Chart(
            "mobilenetv2-loss",
            "What does it learn, and does the frozen network converge?",
            "The rule stands in the reason's words; random weights frozen in place say nothing of convergence and are"
            " not judged.",
            charts.losses,
        ),
    ),
    published=(Rule("crashed_over_196", None, "status == 'crashed' and image_size_over == 196"),),
    quantities=tables.claimed,
)
