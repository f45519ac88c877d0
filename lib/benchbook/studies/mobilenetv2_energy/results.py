"""What the MobileNetV2 study says: images a second, joules an image, what is learnt, and what breaks."""

from benchbook.judging import wording
from benchbook.rows import records
from benchbook.studies import findings
from benchbook.studies.mobilenetv2_energy import charts, tables
from benchbook.studies.study import Chart, Evidence, Rule, Study


def finding(evidence: Evidence) -> str:
    """Return the fastest setting, what an image takes of energy, and how many settings failed."""
    table = tables.settings(evidence)
    own = table[table["source"] == "measured"]
    trained = own[own["status"].isin(records.TRAINED) & own["images_per_second"].notna()]
    if trained.empty:
        return f"{charts.rates_title(table)}."
    best = findings.fastest(trained, "images_per_second")
    hedge = findings.hedged(evidence, [best], findings.stand_in(best, "cifar10"))
    rate, place = wording.number(best["images_per_second"]), findings.place(evidence, best, trained)
    first = f"MobileNetV2 trains {rate} images a second on {place}, {charts.described(best)}{hedge}"
    failed = len(own) - len(trained)
    broken = f"; {failed} of {len(own)} settings failed" if failed else ""
    return f"{first}. {charts.joules_title(table)}{broken}."


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
            "The table gives the rule for convergence beside each verdict. A frozen network of random weights is not"
            " judged: it cannot converge.",
            charts.losses,
        ),
    ),
    published=(Rule("crashed_over_196", None, "status == 'crashed' and image_size_over == 196"),),
    finding=finding,
    quantities=tables.claimed,
)
