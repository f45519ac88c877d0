"""What the autoencoder study says: whether the loss runs away, and whether steps agree with float64."""

from benchbook.studies.vae_stability import charts, tables
from benchbook.study import Chart, Rule, Study

LOGGED = "images_seen_in_epoch == {}"

STUDY = Study(
    name=tables.NAME,
    title="Variational autoencoder",
    article="Chinese PyTorch blog post, 2022",
    charts=(
        Chart(
            "vae-loss",
            "Does the loss run away?",
            "Losses per image of windows, beside the published log; the first steps are single batches, as that log's"
            " lines are.",
            charts.losses,
        ),
        Chart(
            "vae-parity",
            "Does a device compute what float64 on a CPU does?",
            "First the autoencoder's steps, then a verdict for every study, device, precision and version that was"
            " compared. Figures of a point that fails are not to be trusted.",
            charts.agreement,
        ),
    ),
    published=(
        Rule("first_loss", "loss", LOGGED.format(0)),
        Rule("loss_after_10_steps", "loss", LOGGED.format(1280)),
        Rule("loss_after_20_steps", "loss", LOGGED.format(2560)),
        Rule("loss_after_30_steps", "loss", LOGGED.format(3840)),
        Rule("diverged", None, "status == 'diverged' and device != 'cpu'"),
    ),
    quantities=lambda evidence: tables.events(evidence) + tables.step_losses(evidence),
)
