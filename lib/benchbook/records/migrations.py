"""Rows of older versions read as those of the present one: one step from each version to the next.

Version 2: the hash in a measured point's name is over what differs from its notebook's defaults; in version 1 it was
over all parameters, so that a new parameter gave every point another name (see `points.point_name`).
"""

from collections.abc import Callable

import pandas

from benchbook import points
from benchbook.records.schema import SCHEMA_VERSION, SchemaError


def migrate(rows: pandas.DataFrame, read_manifest: Callable[[], dict], source: str) -> pandas.DataFrame:
    """Return rows, every value as text, as the present version writes them.

    Args:
        rows: of one run, or of an article, as a file has them.
        read_manifest: returns the run's manifest, empty where there is none; called for older rows alone.
        source: what to call the rows in an error.

    Raises:
        SchemaError: rows of a newer version than this one reads.
    """
    if "schema_version" not in rows or (rows["schema_version"] == str(SCHEMA_VERSION)).all():
        return rows
    versions = pandas.to_numeric(rows["schema_version"], errors="coerce")
    newer = versions > SCHEMA_VERSION
    if newer.any():
        line, version = int(rows.index[newer][0]) + 2, rows["schema_version"][newer].iloc[0]
        raise SchemaError(
            f"{source}, line {line}: schema_version is {version}; allowed: 1 to {SCHEMA_VERSION} (a newer benchbook "
            "reads it)"
        )
    for version, step in STEPS.items():
        old = rows["schema_version"] == str(version)
        if old.any():
            changed = step(rows[old], read_manifest()).assign(schema_version=str(version + 1))
            rows = pandas.concat([rows[~old.fillna(False)], changed]).sort_index()
    return rows


def _name_points(rows: pandas.DataFrame, manifest: dict) -> pandas.DataFrame:
    """Name the point of measured rows anew, from the run's manifest; without one it keeps its name."""
    parameters = manifest.get("parameters")
    study, measured = rows["study"].iloc[0], (rows["source"] == "measured").all()
    if not measured or not isinstance(parameters, dict) or "device" not in parameters:
        return rows
    try:
        return rows.assign(point=points.point_name(study, parameters))
    except ValueError:  # a study that is not here
        return rows


STEPS: dict[int, Callable[[pandas.DataFrame, dict], pandas.DataFrame]] = {1: _name_points}
