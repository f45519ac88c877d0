"""Tables and charts of the MobileNetV2 study: images a second and joules an image by setting, losses, convergence."""

from benchbook.studies.mobilenetv2_energy.charts import (
    draw_joules,
    draw_losses,
    draw_rates,
    joules_title,
    losses_title,
    num_curves,
    rates_title,
)
from benchbook.studies.mobilenetv2_energy.tables import (
    convergence,
    convergence_sentence,
    curves,
    quantities,
    reading,
    settings,
)

__all__ = [
    "convergence",
    "convergence_sentence",
    "curves",
    "draw_joules",
    "draw_losses",
    "draw_rates",
    "joules_title",
    "losses_title",
    "num_curves",
    "quantities",
    "rates_title",
    "reading",
    "settings",
]
