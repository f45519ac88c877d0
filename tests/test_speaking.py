"""Which session speaks for a point, by the design's rule, in random histories of measurements."""

import random

import pandas
import pytest

from benchbook.judging import statistics
from benchbook.rows import crosschecks
from benchbook.studies.results.evidence import Evidence
from made.rows import make_row, make_rows, samples, windows

KINDS = {"mine": "aaaa", "a friend's": "aaaa", "another kind's": "bbbb", "an unknown kind's": ""}
POINTS = ("quick", "paper")


def history(draw: random.Random) -> list[dict]:
    """Return random sessions: whose, when, of which point, how many processes, how steady."""
    days = draw.sample(range(10, 29), draw.randint(1, 8))
    is_dated = draw.random() < 0.7  # else names alone tell the order
    return [
        {
            "session": f"{draw.randrange(10**6) if is_dated else day}-{number}",
            "owner": draw.choice(list(KINDS)),
            "point": draw.choice(POINTS),
            "processes": draw.choice((0, 1, 1, 2, 3)),
            "apart": draw.choice((1.0, 1.5)),
            "slept": draw.choice((False, False, True)),  # in the first process
            "started_at": f"2026-11-{day}T00:00:00Z" if is_dated else None,
        }
        for number, day in enumerate(days)
    ]


def measured(sessions: list[dict]) -> tuple[pandas.DataFrame, dict, pandas.DataFrame, set]:
    """Return the rows of sessions, their manifests, samples, and the sessions that are mine."""
    rows, manifests, conditions = [], {}, []
    for each in sessions:
        common = {name: each[name] for name in ("session", "point", "started_at")}
        ids = [f"{each['session']}-{number}" for number in range(max(1, each["processes"]))]
        for number, run_id in enumerate(ids):
            manifests[run_id] = {"machine": {"fingerprint": KINDS[each["owner"]]}}
            slept = {"elapsed_seconds": 4160.0} if each["slept"] and not number else {}
            conditions += [sample | {"run_id": run_id} for sample in samples(**slept)]
            rates = [100.0 * each["apart"] ** number] * 3
            rows += windows(rates, run_id=run_id, **common) if each["processes"] else []
        if not each["processes"]:
            rows.append(
                make_row(run_id=ids[0], samples_per_second=None, status="crashed", **common)
            )
    own = {each["session"] for each in sessions if each["owner"] == "mine"}
    return make_rows(rows), manifests, pandas.DataFrame(conditions), own


def by_rule(sessions: list[dict]) -> dict:
    """Return the session that speaks: an interval before a range before none, then the newest."""
    ranks = [
        (min(each["processes"], 2), each["started_at"] or each["session"], each)
        for each in sessions
    ]
    return max(ranks, key=lambda rank: rank[:2])[2]


@pytest.mark.parametrize("seed", range(24))
def test_the_session_that_speaks_is_the_rules(seed):
    sessions = history(random.Random(seed))
    rows, manifests, conditions, own = measured(sessions)
    evidence = Evidence(crosschecks.by_owner(rows, manifests, own), conditions)
    spoken = evidence.summary.set_index(["machine", "point"])["session"].to_dict()
    owners = {each["owner"] for each in sessions}
    names = {owner: f"desk ({kind or 'unknown'})" for owner, kind in KINDS.items()}
    if "mine" in owners or len(owners) == 1:  # a friend's are another machine's, of my kind too
        names["mine" if "mine" in owners else owners.copy().pop()] = "desk"
    groups: dict[tuple, list[dict]] = {}
    for each in sessions:
        groups.setdefault((names[each["owner"]], each["point"]), []).append(each)
    assert spoken == {key: by_rule(group)["session"] for key, group in groups.items()}
    if sessions[0]["started_at"] is None:
        return
    alike = statistics.speaking(evidence.summary, ["machine"])  # of quick and paper, one
    expected: dict[str, list[dict]] = {}
    for key, group in groups.items():
        expected.setdefault(key[0], []).append(by_rule(group))
    found = alike.set_index("machine")["session"].to_dict()
    assert found == {machine: by_rule(group)["session"] for machine, group in expected.items()}
