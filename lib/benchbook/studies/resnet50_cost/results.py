"""What the ResNet-50 study says: images a second by batch and device count, dollars, and what an accuracy costs."""

from benchbook.judging import wording
from benchbook.studies import findings
from benchbook.studies.resnet50_cost import charts, money, tables
from benchbook.studies.study import Chart, Evidence, Rule, Study

MILLION = 1e6  # images


def finding(evidence: Evidence) -> str:
    """Return the fastest point, how long a million images take on it, and what they cost."""
    points = evidence.points(tables.NAME)
    trained = points[points["status"].eq("ok") & points["samples_per_second"].notna()]
    costs = money.costs(evidence)
    price = wording.sentence(charts.costs_title(costs))
    if trained.empty:
        return f"ResNet-50 was not measured here yet. {price}"
    best = findings.fastest(trained, "samples_per_second")
    rate, whole = best["samples_per_second"], wording.duration(MILLION / best["samples_per_second"])
    hedge = findings.hedged(
        evidence, [best], "random pixels, so that input costs nothing" * (best["dataset"] == "synthetic")
    )
    place = findings.place(evidence, best, trained)
    first = f"ResNet-50 trains {wording.number(rate)} images a second on {place}{hedge}: a million take {whole}"
    return f"{first}. {price}"


STUDY = Study(
    name=tables.NAME,
    title="ResNet-50",
    article="RiseML, 2018",
    charts=(
        Chart(
            "resnet50-batches",
            "Images a second by batch, and the share of the ceiling",
            "A cross where memory did not hold the batch. The table names the largest batch that trained without the"
            " machine swapping, and the fastest.",
            charts.rates,
        ),
        Chart(
            "resnet50-scaling",
            "Do several devices pay?",
            "Weak: as many images for each device as one had alone. Strong: the same batch, shared out.",
            charts.scaling,
        ),
        Chart(
            "resnet50-money",
            "What does a million images cost?",
            "At every price there is: on demand, reserved, stated by the run, or the electricity of a machine that is"
            " paid for. Then the hours of training at which a purchase has paid, where a run states its price.",
            charts.costs,
        ),
        Chart(
            "resnet50-accuracy",
            "What does an accuracy cost?",
            "Raw curves, never continued: the table says when each run first reached the article's 75.7 %, if it did.",
            charts.accuracy,
        ),
    ),
    published=(
        Rule("synthetic_rate", "samples_per_second", "dataset == 'synthetic' and batch_size == 1024"),
        Rule("mxnet_rate", "samples_per_second", "dataset == 'synthetic' and batch_size == 768"),
        Rule("real_rate", "samples_per_second", "dataset == 'imagenet' and phase == 'train'"),
    ),
    finding=finding,
    quantities=lambda evidence: money.accuracies(evidence) + money.stated_prices(evidence) + tables.rates(evidence),
)
