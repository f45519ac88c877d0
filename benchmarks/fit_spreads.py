"""Fit the constants of `benchbook.record.model` to the record: the spreads under which its rates are likeliest.

`python benchmarks/fit_spreads.py` prints them, in about a minute; they are then written into the module by hand. No
prediction error is looked at, so that the errors which are published stay those of rates that were hidden.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 5.4.1: the marginal likelihood.
"""

import numpy
import pandas
from scipy.optimize import minimize

from benchbook.record import model, rates

FITTED = tuple(name for name in model.SPREADS if name != "free")
ORIGINS = (model.RECORD, model.ARTICLES)


def fit(lines: pandas.DataFrame) -> dict[str, float]:
    """Return the spread of each kind of columns and the noise of each origin that make the lines likeliest."""
    learnt = model.Model(lines)
    products = {kind: numpy.zeros((len(lines), len(lines))) for kind in (*FITTED, "free")}
    for kind, columns in learnt.blocks(learnt.observations):
        products[kind] += columns @ columns.T
    origins = learnt.observations["origin"]
    parts = [products[kind] for kind in FITTED] + [numpy.diag(origins.eq(name).to_numpy(float)) for name in ORIGINS]
    free = model.SPREADS["free"] ** 2 * products["free"]

    def unlikeliness(logs: numpy.ndarray) -> tuple[float, numpy.ndarray]:
        variances = numpy.exp(2 * logs)
        covariance = free + sum(variance * part for variance, part in zip(variances, parts, strict=True))
        precision = numpy.linalg.inv(covariance)
        weights = precision @ learnt.logs
        value = learnt.logs @ weights / 2 + numpy.linalg.slogdet(covariance)[1] / 2
        slopes = [(precision * part).sum() - weights @ part @ weights for part in parts]
        return value, variances * slopes

    found = minimize(unlikeliness, numpy.full(len(parts), numpy.log(0.2)), jac=True, method="L-BFGS-B")
    return dict(zip((*FITTED, *ORIGINS), numpy.exp(found.x).tolist(), strict=True))


if __name__ == "__main__":
    lines = rates.of_publications()
    for name, spread in fit(lines[lines["sequence_length"].isna()]).items():
        print(f"{name}: {spread:.3f}")
