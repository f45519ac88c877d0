"""What the SimCLR study says: minutes an epoch, the input's share, accuracy, which precisions and compilers work."""

from benchbook.judging import wording
from benchbook.judging.confirmation import UNCONFIRMED
from benchbook.studies.simclr_epochs import charts, matrix, tables
from benchbook.studies.simclr_epochs.tables import EPOCH
from benchbook.studies.study import Chart, Evidence, Rule, Study

ACCELERATOR = "device != 'cpu' and reading.isna() and batch_size == 128 and epochs == {}"


def quantities(evidence: Evidence) -> list[dict]:
    """Return the seconds of the article's epochs, their accuracy and memory, and what an accelerator refused.

    Several epochs take as many times as long as one.
    """
    table, seconds = tables.epochs(evidence), []
    for count, words in ((1, ""), (2, "two_"), (200, "200_")):
        times = table.assign(**{name: table[name] * count for name in (EPOCH.unit, "low", "high")})
        seconds += EPOCH.quantities(times, f"{words}epoch{'s' * (count > 1)}_seconds")
    return seconds + tables.trained(evidence) + matrix.claimed(evidence, STUDY.name)


WAYS = {"reference": "as in the article", "controlled": "with equal input", "tuned": "tuned", UNCONFIRMED: "tuned"}
WAYS |= {"tuned, joint views": "tuned with both views in one pass"}


def finding(evidence: Evidence) -> str:
    """Return how long the article's epoch takes, how much of it is input, and what the article's machines take."""
    times = tables.epochs(evidence)
    if EPOCH.measured(times).empty:
        return f"No epoch of SimCLR was measured here yet. {EPOCH.printed_sentence(times)}".strip()
    share = EPOCH.input_share(times, tables.shares(evidence))
    printed = EPOCH.printed_sentence(times)
    if share is not None:
        views = f"Making two views of each image is {wording.percent(share)} of a step"
        printed = f"{views}; t{printed[1:]}" if printed else f"{views}."
    return f"{EPOCH.sentence(evidence, times, 'One epoch of SimCLR', WAYS)}. {printed}".strip()


STUDY = Study(
    name=tables.NAME,
    title="SimCLR",
    article="Lightly, 2023",
    charts=(
        Chart(
            "simclr-epochs",
            "Minutes for one epoch",
            "Training and the nearest-neighbour evaluation, each scaled to the article's images.",
            charts.epochs,
        ),
        Chart(
            "simclr-input-share",
            "How much of a step is input?",
            "Making two views of every image, on the host or on the device: what the same steps on ready views would"
            " save.",
            charts.shares,
        ),
        Chart("simclr-accuracy", "What does it learn?", "", charts.accuracies),
        Chart(
            "support",
            "Which precisions work, and do they pay?",
            "The same steps from the same weights, on views that lie on the device, beside fp32 without the compiler.",
            charts.support,
        ),
    ),
    published=(
        Rule("cpu_epoch_seconds", "seconds", "device == 'cpu' and epochs == 1"),
        Rule("cpu_two_epochs_seconds", "seconds", "device == 'cpu' and epochs == 2"),
        Rule("accelerator_epoch_seconds", "seconds", ACCELERATOR.format(1)),
        Rule("accelerator_two_epochs_seconds", "seconds", ACCELERATOR.format(2)),
        Rule("accelerator_200_epochs_seconds", "seconds", ACCELERATOR.format(200)),
        Rule("knn_accuracy", "accuracy", ACCELERATOR.format(200)),
        Rule("peak_memory_bytes", "peak_memory_bytes", ACCELERATOR.format(200)),
    ),
    finding=finding,
    quantities=quantities,
    epoch_seconds=lambda evidence: EPOCH.seconds(tables.epochs(evidence)),
)
