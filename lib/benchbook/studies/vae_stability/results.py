"""What the autoencoder study says: whether the loss runs away, and whether steps agree with float64."""

from benchbook import figures, parity, quantities, statistics
from benchbook.studies.vae_stability import charts
from benchbook.study import Chart, Drawing, Evidence, Rule, Study

LOGGED = "images_seen_in_epoch == {}"


def losses(evidence: Evidence) -> Drawing:
    """Draw the loss over images seen."""
    table = charts.loss_curves(evidence.rows)
    figure, axes = figures.canvas(4.0)
    charts.draw_losses(axes, table)
    title = charts.losses_title(table)
    return Drawing(figure, table, f"Loss per image over images seen. {title}.", title)


def agreement(evidence: Evidence) -> Drawing:
    """Draw the steps beside the same steps in float64."""
    table = charts.parity_curves(evidence.measured)
    figure, panels = figures.canvas(4.0, 10.0, panels=2)
    charts.draw_parity(panels[0], table)
    charts.draw_step_losses(panels[1], table)
    title = charts.parity_title(table)
    alt = f"Relative error of each step's loss, and the losses themselves. {title}."
    return Drawing(figure, table, alt, title, {"parity": parity.verdicts(evidence.measured)})


def events(evidence: Evidence) -> list[dict]:
    """Return whether the article's run diverged on an accelerator, and whether it did not on the CPU."""
    rows = evidence.measured
    study = rows[(rows["study"] == STUDY.name) & (rows["dataset"] == "mnist") & (rows["precision"] == "fp32")]
    study = statistics.newest(study[(study["phase"] == "train") & (study["variant"] == "reference")])
    events = []
    for (_, device), windows in study.groupby(["machine", "device"]):
        diverged = (windows["status"] == "diverged").any()
        name, happened = ("cpu_trained", not diverged) if device == "cpu" else ("diverged", diverged)
        events.append(quantities.exact(windows.iloc[0].to_dict(), name, float(happened)))
    return events


STUDY = Study(
    name="vae_stability",
    title="Variational autoencoder",
    article="Chinese PyTorch blog post, 2022",
    charts=(
        Chart(
            "vae-loss",
            "Does the loss run away?",
            "Losses per image of windows, beside the published log; the first steps are single batches, as that log's"
            " lines are.",
            losses,
        ),
        Chart(
            "vae-parity",
            "Does a device compute what float64 on a CPU does?",
            "First the autoencoder's steps, then a verdict for every study, device, precision and version that was"
            " compared. Figures of a point that fails are not to be trusted.",
            agreement,
        ),
    ),
    published=(
        Rule("first_loss", "loss", LOGGED.format(0)),
        Rule("loss_after_10_steps", "loss", LOGGED.format(1280)),
        Rule("loss_after_20_steps", "loss", LOGGED.format(2560)),
        Rule("loss_after_30_steps", "loss", LOGGED.format(3840)),
        Rule("diverged", None, "status == 'diverged' and device != 'cpu'"),
    ),
    quantities=events,
)
