"""What is said of a user's own network: how fast it trains here, in which batches, and what other chips would take."""

from benchbook.studies import findings
from benchbook.studies.study import Chart, Evidence, Study
from benchbook.studies.your_network import charts, tables


def finding(evidence: Evidence) -> str:
    """Return how fast the fastest network trains here, and what another chip is predicted to take."""
    rates, elsewhere = tables.rates(evidence), tables.elsewhere(evidence)
    if rates.empty:
        return "No network of your own was measured here yet."
    hedge = findings.hedged(evidence, evidence.points(tables.NAME).to_dict("records"))
    return f"{charts.rates_title(rates)}{hedge}. {charts.elsewhere_title(elsewhere)}."


STUDY = Study(
    name=tables.NAME,
    title="Your network",
    finding=finding,
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
            " Unseen is what the record would have said of this machine without having seen it."
            " Dollars are those of the median rent on record.",
            charts.elsewhere,
        ),
    ),
)
