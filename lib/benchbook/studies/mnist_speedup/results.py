"""What the MNIST study says: seconds for an epoch, the accelerator's speed-up, the input's share, a step's cost."""

from benchbook.studies.mnist_speedup import charts, tables
from benchbook.studies.mnist_speedup.tables import EPOCH
from benchbook.study import Chart, Rule, Study

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
    quantities=tables.quantities,
    epoch_seconds=lambda evidence: EPOCH.seconds(tables.epochs(evidence)),
)
