"""What the MNIST study says: seconds for an epoch, the accelerator's speed-up, the input's share, a step's cost."""

from benchbook.judging import wording
from benchbook.judging.confirmation import UNCONFIRMED
from benchbook.studies.mnist_speedup import charts, tables
from benchbook.studies.mnist_speedup.tables import EPOCH
from benchbook.studies.study import Chart, Evidence, Rule, Study

WAYS = {
    "reference": "with the article's loader",
    "equal loader": "with an equal loader",
    "tuned": "tuned",
    UNCONFIRMED: "tuned",
}
WAYS |= {"resident": "with the data on the device"}


def finding(evidence: Evidence) -> str:
    """Return how long the article's epoch takes, and what of it is the chip, or else the loader."""
    times = tables.epochs(evidence)
    if EPOCH.measured(times).empty:
        return f"No MNIST epoch was measured here yet. {EPOCH.printed_sentence(times)}".strip()
    first = EPOCH.sentence(evidence, times, "One MNIST epoch", WAYS)
    speedups, share = tables.speedups(times), EPOCH.input_share(times, tables.shares(evidence))
    own = speedups[(speedups["source"] == "measured") & (speedups["machine"] == EPOCH.fastest(times)["machine"])]
    if len(own):
        second = f"Its accelerator is {wording.span(own['speedup'], wording.times)} times as fast as its CPU."
    elif share is not None:
        second = f"The loader accounts for {wording.part(share)} of a training step."
    else:
        second = EPOCH.printed_sentence(times)
    return f"{first}. {second}".strip()


STUDY = Study(
    name=tables.NAME,
    title="MNIST",
    article="Chinese PyTorch blog post, 2022",
    charts=(
        Chart("mnist-epochs", "Seconds for one epoch", "", charts.epochs),
        Chart(
            "mnist-speedup",
            "Speed-up of the accelerator over its CPU",
            "First with the article's loaders, then with equal ones: what remains is the chip.",
            charts.speedups,
        ),
        Chart(
            "mnist-input-share",
            "How much of a step is input?",
            "The host's wait may overlap device work; the share saved is 1 - resident step / loop step, at the"
            " article's batch size.",
            charts.shares,
        ),
        Chart(
            "mnist-step-time",
            "What does a step cost before the first image?",
            "A line through the resident step's time at several batch sizes: its start is what every step pays"
            " (launching), its slope what every image pays (arithmetic). Neither can be negative.",
            charts.step_times,
        ),
    ),
    published=(
        Rule("cpu_seconds", "seconds", "phase == 'total' and device == 'cpu'"),
        Rule("accelerator_seconds", "seconds", "phase == 'total' and device != 'cpu'"),
    ),
    finding=finding,
    quantities=tables.quantities,
    epoch_seconds=lambda evidence: EPOCH.seconds(tables.epochs(evidence)),
)
