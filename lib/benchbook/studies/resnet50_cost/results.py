"""What the ResNet-50 study says: images a second by batch and device count, dollars, and what an accuracy costs."""

from benchbook.studies.resnet50_cost import charts, money, tables
from benchbook.study import Chart, Rule, Study

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
    quantities=lambda evidence: money.accuracies(evidence) + money.stated_prices(evidence) + tables.rates(evidence),
)
