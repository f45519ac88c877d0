"""What no single file shows: copies, names alike; and the committed rows, which hold no lie. More is in bad_files."""

import pandas
import pytest

from benchbook.rows import crosschecks, manifests, records
from rows import COMMITTED


@pytest.fixture(scope="module")
def committed():
    return records.merge(records.find(COMMITTED)), manifests.every(COMMITTED)


@pytest.fixture(scope="module")
def real(committed):
    """Return the rows and manifests of one session of MNIST and its calibration."""
    rows, described = committed
    kept = rows[rows["study"].isin(["calibrate", "mnist_speedup"])]
    kept = kept[kept["session"] == kept.loc[kept["study"] == "mnist_speedup", "session"].iloc[0]]
    return kept.reset_index(drop=True), {run_id: described[run_id] for run_id in set(kept["run_id"])}


def test_the_committed_rows_hold_no_contradiction(committed):
    assert crosschecks.complaints(*committed).to_dict("records") == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [(None, "have no manifest"), ({"environment": None}, "a manifest without packages"), ({}, None)],
)
def test_a_run_that_nothing_proves_is_named_and_kept(real, change, reason):
    rows, described = real
    run_id = rows["run_id"].iloc[0]
    others = {name: manifest for name, manifest in described.items() if name != run_id}
    said = []
    kept = crosschecks.without(
        rows, others if change is None else others | {run_id: described[run_id] | change}, said.append
    )
    assert len(kept) == len(rows)
    assert [reason in line and run_id in line for line in said] == ([True] if reason else [])


def test_a_machine_whose_name_is_taken_for_another_is_refused(real):
    rows, _ = real
    other = rows.assign(machine="arnd-epyc-2c0re-24gb", run_id=rows["run_id"].str.replace("20261122", "20261123"))
    both = pandas.concat([rows.iloc[:1], other.iloc[:1]], ignore_index=True)
    assert set(crosschecks.complaints(both, {})["machine"]) == {"arnd-epyc-2c0re-24gb"}
