"""What the autoencoder study says: whether the loss runs away, and whether steps agree with float64."""

from benchbook.judging import wording
from benchbook.studies import findings
from benchbook.studies.study import Chart, Evidence, Rule, Study
from benchbook.studies.vae_stability import charts, tables

LOGGED = "images_seen_in_epoch == {}"


def finding(evidence: Evidence) -> str:
    """Return where the loss ended here and in print, and whether the first steps agree with float64."""
    losses = tables.losses(evidence)
    measured = losses[losses["source"] == "measured"]
    printed = charts.published_sentence(losses, evidence.names)
    if measured.empty:
        return wording.sentence(f"The autoencoder was not trained here yet. {printed}")
    hedge = findings.hedged(evidence, evidence.points(tables.NAME).to_dict("records"))
    first = f"{charts.measured_sentence(measured, evidence.names)}{hedge}"
    return f"{first}. {wording.sentence(printed or charts.parity_title(tables.compared_steps(evidence)))}"


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
    finding=finding,
    published=(
        Rule("first_loss", "loss", LOGGED.format(0)),
        Rule("loss_after_10_steps", "loss", LOGGED.format(1280)),
        Rule("loss_after_20_steps", "loss", LOGGED.format(2560)),
        Rule("loss_after_30_steps", "loss", LOGGED.format(3840)),
        Rule("diverged", None, "status == 'diverged' and device != 'cpu'"),
    ),
    quantities=lambda evidence: tables.events(evidence) + tables.step_losses(evidence),
)
