"""What is said of a user's own network: how fast it trains here, in which batches, and what other chips would take."""

from benchbook.studies.your_network import charts, tables
from benchbook.study import Chart, Study

STUDY = Study(
    name=tables.NAME,
    title="Your network",
    charts=(
        Chart(
            "your-network-rates",
            "How fast does it train here?",
            "Each network in each setting that was measured; a cross where it failed.",
            charts.rates,
        ),
        Chart(
            "your-network-batch-sizes",
            "Which batch size is the fastest, and which is the largest?",
            "Two windows each; bounds are their range. A cross is a batch that memory did not hold.",
            charts.batch_sizes,
        ),
        Chart(
            "your-network-input",
            "How much of a step is input?",
            "Of data sets that are loaded: how long the device waited, and what a batch on the device would save.",
            charts.shares,
        ),
        Chart(
            "your-network-elsewhere",
            "What would other chips take?",
            "Predicted from the network's operations and the public record; bounds hold 90 % of such predictions."
            " Dollars are those of the median rent on record.",
            charts.elsewhere,
        ),
    ),
)
