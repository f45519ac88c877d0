"""Fit the constants of `benchbook.record.model` to the record: the spreads with the highest marginal likelihood.

`python benchmarks/fit_spreads.py` prints them in about a minute; copy them into the module by hand. The fit uses no
prediction errors, so the published errors remain errors on hidden rates.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 5.4.1: the marginal likelihood.
"""

import numpy
import pandas
from scipy.optimize import minimize

from benchbook.record import model, rates

FITTED = tuple(name for name in model.SPREADS if name != "free")
ORIGINS = (model.RECORD, model.ARTICLES)


def fit(lines: pandas.DataFrame) -> dict[str, float]:
    """Return the most likely spread of each kind of columns and noise of each origin."""
    fitted = model.Model(lines)
    products = {kind: numpy.zeros((len(lines), len(lines))) for kind in (*FITTED, "free")}
    for kind, columns in fitted.blocks(fitted.observations):
        products[kind] += columns @ columns.T
    origins = fitted.observations["origin"]
    parts = [products[kind] for kind in FITTED] + [numpy.diag(origins.eq(name).to_numpy(float)) for name in ORIGINS]
    free = model.SPREADS["free"] ** 2 * products["free"]

    def unlikeliness(logs: numpy.ndarray) -> tuple[float, numpy.ndarray]:
        variances = numpy.exp(2 * logs)
        covariance = free + sum(variance * part for variance, part in zip(variances, parts, strict=True))
        precision = numpy.linalg.inv(covariance)
        weights = precision @ fitted.logs
        value = fitted.logs @ weights / 2 + numpy.linalg.slogdet(covariance)[1] / 2
        slopes = [(precision * part).sum() - weights @ part @ weights for part in parts]
        return value, variances * slopes

    found = minimize(unlikeliness, numpy.full(len(parts), numpy.log(0.2)), jac=True, method="L-BFGS-B")
    return dict(zip((*FITTED, *ORIGINS), numpy.exp(found.x).tolist(), strict=True))


if __name__ == "__main__":
    lines = rates.of_publications()
    for name, spread in fit(lines[lines["sequence_length"].isna()]).items():
        print(f"{name}: {spread:.3f}")
