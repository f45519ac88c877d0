"""Points that trained something else than they should have: found, named, and never the best of
anything."""

import pytest
import yaml

from benchbook import studies
from benchbook.judging import compare, verdicts
from benchbook.report import closing
from benchbook.studies.charts import figures
from benchbook.studies.results import quantities
from benchbook.studies.results.evidence import Evidence
from made.rows import make_row, make_rows, windows

GOOD = yaml.safe_load("""
{gradient_cosine: 1.0, gradient_norm_ratio: 1.0, worst_cosine: 1.0, worst_cosine_layer: dense, worst_norm_ratio: 1.0,
 worst_norm_ratio_layer: dense, reference_loss: 2.0, same_weights_loss: 2.0}
""")


def point(name, rate, accuracy=0.9, parity=(), **columns):
    """Return the rows of a point of one epoch: a step of parity, six windows and a test."""
    common = {
        "point": name,
        "run_id": f"run-{name}",
        "precision": "fp32",
        "dataset_samples": 600,
    } | columns
    compared = {
        "phase": "parity",
        "loss": 2.0,
        "samples": 64,
        "settings": GOOD | {"step": 1} | dict(parity or {}),
    }
    steps = [] if parity is None else [make_row(**common | compared)]
    test = {"phase": "evaluate", "accuracy": accuracy, "accuracy_metric": "top1", "samples": 1000}
    return [*steps, *windows([rate] * 6, samples=100, **common), make_row(**common | test)]


def test_a_point_whose_gradient_points_the_other_way_is_wrong_and_never_speaks_for_its_study():
    turned = point("turned", 900.0, parity={"gradient_cosine": -1.0, "worst_cosine": -1.0})
    rows = make_rows([*turned, *point("right", 300.0, variant="controlled")])
    evidence = Evidence(rows)
    assert evidence.summary.set_index("point")["status"].to_dict() == {
        "right": "ok",
        "turned": "wrong",
    }
    assert set(evidence.without_wrong().rows["point"]) == {"right"}
    assert "cosine -1.0000" in evidence.summary.set_index("point")["message"]["turned"]
    study = studies.every()["mnist_speedup"]
    assert "an epoch of MNIST" in closing.sentences(evidence, study)[0]
    assert closing.sentences(evidence, study)[0].endswith("equal loader.")
    assert closing.sentences(Evidence(make_rows(turned)), study)[0].startswith("Wrong: ")


# What a point has of its own, and its status.
JUDGED = """
- [{accuracy: 0.12}, wrong]  # chance is 10 %, three standard errors of a thousand images 2.8 %
- [{accuracy: 0.13}, ok]
- [{accuracy: 0.1, dataset: synthetic}, ok]
- [{accuracy: 0.1, dataset_samples: 601}, ok]  # not a whole epoch
- [{accuracy: 0.1, dataset: imagenet}, ok]
- [{accuracy: 0.001, dataset: imagenet}, wrong]
- [{accuracy: null}, ok]
- [{parity: null}, ok]
- [{parity: null, accuracy: 0.1}, wrong]
- [{parity: null, accuracy: 0.1, settings: {trainable: false}}, ok]  # its study judges that
- [{parity: {worst_norm_ratio: 1.1}}, wrong]
- [{parity: {same_weights_loss: 2.1}}, wrong]
- [{loss: 2.1}, wrong]  # in every window
- [{settings: {dropout_acts: false}}, wrong]
- [{settings: {dropout_acts: false, trainable: false}}, ok]  # features may vanish
- [{settings: {dropout_acts: true}}, ok]
- [{loss: 0.0}, ok]  # a small set, learnt by heart
- [{loss: 2.109375}, ok]  # as bfloat16 prints its neighbours, too
- [{loss: 2.1, dataset: synthetic}, ok]  # one batch, and perhaps too small a learning rate to see
"""


@pytest.mark.parametrize(("changes", "status"), yaml.safe_load(JUDGED))
def test_accuracy_of_guessing_and_failed_parity_are_wrong(changes, status):
    rows = make_rows(point("p", 100.0, **changes))
    assert verdicts.summarise(rows)["status"].tolist() == [status]


@pytest.mark.parametrize(("other", "status"), [(2.1, "wrong"), (2.2, "ok")])
def test_a_loss_is_constant_if_it_is_in_all_processes(other, status):
    rows = point("p", 100.0, loss=2.1) + windows([100.0] * 2, point="p", run_id="z", loss=other)
    assert verdicts.summarise(make_rows(rows))["status"].tolist() == [status]


def test_a_comparison_says_first_that_a_side_is_wrong():
    right = make_rows(point("p", 100.0, session="one"))
    wrong, other = (
        make_rows(point("p", 200.0, session=name, parity={"gradient_cosine": -1.0}))
        for name in ("two", "three")
    )
    line = compare.table(right, wrong)[0].iloc[0]
    assert (line["verdict"], line["stability_b"].kind) == ("B trained wrong", "wrong")
    assert "cosine -1.0" in line["stability_b"].text("wrong")
    verdicts = [compare.table(wrong, each)[0]["verdict"].item() for each in (right, other)]
    assert verdicts == ["A trained wrong", "A and B trained wrong"]


def asked(steps, compared=1, **columns):
    """Return the rows of a point whose profile asks for some steps of parity, of which some were
    compared."""
    rows, asks = point("p", 100.0, parity=None, **columns), {"num_parity_steps": steps}
    told = [
        PARITY | columns | {"index": number, "settings": GOOD | {"step": number + 1}}
        for number in range(compared)
    ]
    return [row | {"settings": row["settings"] | asks} for row in [*rows, *told]]


PARITY = make_row(point="p", run_id="run-p", phase="parity", precision="fp32", loss=2.0, samples=64)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (asked(3, 3), None),
        (asked(3, 1), ("few_steps", 1, 3)),
        (asked(3, 0), ("not_compared",)),
        (asked(0, 0), ("not_compared",)),
        (asked(1, 1), None),
        (asked(3, 1, status="unsupported", message="F.linear"), ("refused", "F.linear")),
        (point("p", 100.0, parity=None), None),  # one's own network: it names no steps
        ([*point("p", 100.0, parity=None), PARITY | {"status": "unsupported", "loss": None}], None),
        # in another precision
        (
            [
                row | {"precision": "bf16" if row["phase"] == "train" else "fp32"}
                for row in asked(1, 1)
            ],
            ("not_compared",),
        ),
        (
            [
                *point("p", 100.0),
                PARITY | {"precision": "amp_bf16", "settings": GOOD | {"step": 1}},
            ],
            None,
        ),
    ],
)
def test_a_point_compared_in_fewer_steps_than_its_profile_asks_is_unproven(rows, reason):
    verdict = verdicts.summarise(make_rows(rows))["verdict"].item()
    assert [each for each in verdict.reasons if each != ("few_processes",)] == (
        [reason] if reason else []
    )
    assert verdicts.is_unproven(verdict) is bool(reason)
    assert not verdicts.is_unstable(verdict)


def test_an_unproven_point_speaks_only_where_no_proven_one_does_and_everybody_says_so():
    unproven = [
        row | {"point": "q", "run_id": "run-q", "variant": "controlled"} for row in asked(3, 0)
    ]
    for row in unproven:
        row["samples_per_second"] = 900.0 if row["phase"] == "train" else None
    rows = make_rows([*asked(3, 3), *unproven])
    evidence = Evidence(rows)
    assert evidence.summary.set_index("point")["verdict"]["q"].kind == verdicts.UNPROVEN
    text, *_ = closing.sentences(evidence, studies.every()["mnist_speedup"])
    assert text.endswith("on a Chip A.")  # the reference
    compared, _ = compare.table(
        make_rows(unproven), make_rows([row | {"session": "s2"} for row in unproven])
    )
    assert compared["stability_a"].item().kind == verdicts.UNPROVEN
    outcomes = {figures.outcome(line) for line in evidence.summary.to_dict("records")}
    assert outcomes == {"ok", "unproven"}
    line = evidence.summary[evidence.summary["point"] == "q"].iloc[0].to_dict()
    quantity = quantities.between(line | {"source": "measured"}, "rate", "samples_per_second")
    assert quantity["note"] == "unproven: not compared with float64"
