"""What makes a point: its name, the work behind it, and defaults that may not change unseen."""

import json
from pathlib import Path

import pytest

from benchbook.machine import layout
from benchbook.rows import points

PINNED = json.loads((Path(__file__).parent / "notebook_defaults.json").read_text())
STUDY = "mnist_speedup"
DEFAULTS = points.declared(STUDY) | {"device": "cpu"}


@pytest.mark.parametrize("study", [name for name in layout.notebooks() if name != "aggregate"])
def test_no_default_of_a_notebook_has_changed(study):
    declared, pinned = points.declared(study), PINNED.get(study, {})
    changed = {name: (value, declared.get(name)) for name, value in pinned.items() if value != declared.get(name)}
    assert not changed, (
        f"{study}: defaults changed from and to {changed}. A point's name says what differs from the defaults, so that "
        "every point measured before would now be taken for another. If that is meant, raise SCHEMA_VERSION, name the "
        "points of the committed rows after the new defaults, and change tests/notebook_defaults.json"
    )
    new = sorted(set(declared) - set(pinned))
    assert not new, f"{study}: add {', '.join(new)} to tests/notebook_defaults.json; older points keep their names"


def test_a_new_parameter_changes_no_points_name(monkeypatch):
    before = points.point_name(STUDY, DEFAULTS | {"batch_size": 16})
    declared = points.declared(STUDY)
    monkeypatch.setattr(points, "declared", lambda study: declared | {"num_prefetched": 2})
    assert points.point_name(STUDY, DEFAULTS | {"batch_size": 16}) == before
    assert points.point_name(STUDY, DEFAULTS | {"batch_size": 16, "num_prefetched": 2}) == before
    assert points.point_name(STUDY, DEFAULTS | {"batch_size": 16, "num_prefetched": 3}) != before


def test_the_work_of_a_point_is_the_same_on_every_device_and_however_much_is_measured():
    def work(study=STUDY, **changes):
        parameters = points.declared(study) | {"device": "cpu"} | changes
        return points.point_work(points.point_name(study, parameters), parameters["device"])

    same = [{}, {"device": "cuda"}, {"data_root": "/x"}, {"search_seconds": 6.0}, {"num_windows": 6}, {"seed": 2}]
    others = [{"variant": "tuned"}, {"batch_size": 16}, {"data_resident": True}]
    assert {work(**changes) for changes in same} == {"reference"}
    assert len({work(**changes) for changes in [{}, *others]}) == 1 + len(others)
    assert work("simclr_epochs", matrix="eager") == work("simclr_epochs")
    long = [work("your_network", arguments="a" * 99 + last) for last in "bc"]
    assert long[0] != long[1], "names are cut, hashes are not"


def test_differing_parameters_are_those_that_are_not_the_default_wherever_the_data_lies():
    assert points.non_default(STUDY, DEFAULTS) == {"device": "cpu"}
    changed = DEFAULTS | {"seed": 7, "search_seconds": 30, "data_root": "/somewhere"}
    assert points.non_default(STUDY, changed) == {"device": "cpu", "seed": 7, "search_seconds": 30.0}
    assert json.dumps(points.non_default(STUDY, changed)["search_seconds"]) == "30.0"  # the same hash as a fraction's


def test_the_budget_is_left_out_of_the_readable_name_and_not_of_the_hash():
    plain, longer = (points.point_name(STUDY, DEFAULTS | {"num_windows": number}) for number in (1, 6))
    assert {points.HASH.sub("", name) for name in (plain, longer)} == {"reference-cpu"}
    assert plain != longer


def test_a_point_has_a_title_for_people_without_the_hash_of_its_name():
    assert points.setting(points.point_name(STUDY, DEFAULTS | {"batch_size": 16})) == "reference, CPU, batch 16"
    assert points.setting("published-row") == "published, row"
    cut = points.point_name("your_network", points.declared("your_network") | {"device": "cpu", "arguments": "a" * 99})
    assert points.setting(cut) == "reference, CPU, ..."


def test_texts_in_arguments_are_written_as_digests_and_tell_points_apart():
    def made(arguments, network="net.py:network"):
        return {**points.declared("your_network"), "device": "cpu", "network": network, "arguments": arguments}

    secret, other = made("width=6, token='hf_secret', parts=[1, '/home/me']"), made("width=6, token='hf_other'")
    public = points.public(secret)
    name = points.point_name("your_network", secret)
    assert not any(word in f"{public} {name}" for word in ("hf_secret", "/home", "me'"))
    assert public["arguments"].startswith("width=6, token=sha256_")
    assert points.point_name("your_network", public) == name != points.point_name("your_network", other)
    named = "model_name='resnet50', pretrained=False"
    assert points.public(made(named, "timm:create_model"))["arguments"] == named  # it tells what was measured
    for text in ("width=6,depth=2", "[" * 3000, "1 +", "a" * 99):
        assert points.public(made(text))["arguments"] == text
