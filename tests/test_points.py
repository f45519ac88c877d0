"""What makes a point: its name, the work behind it, and defaults that may not change unseen."""

import json
import re
import shutil

import pytest

from benchbook.machine import layout
from benchbook.rows import points
from rows import COMMITTED

STUDY = "mnist_speedup"
DEFAULTS = points.declared(STUDY) | {"device": "cpu"}


@pytest.mark.parametrize("study", [name for name in layout.notebooks() if name != "aggregate"])
def test_no_default_of_a_notebook_has_changed(study):
    declared, (outer, inner) = points.declared(study), points.defaults(study)
    changed = {name: (value, declared.get(name)) for name, value in (outer | inner).items() if value != declared[name]}
    assert not changed, (
        f"{study}: defaults changed from and to {changed}. A point's name says what differs from rows/defaults.json. "
        "If that is meant, raise SCHEMA_VERSION, name the points of the committed rows after the new defaults, and "
        "change the file"
    )
    new = sorted(set(declared) - {*outer, *inner})
    assert not new, f"{study}: add {', '.join(new)} to rows/defaults.json; older points keep their names"
    assert inner.keys() == points.budget(study).keys()


def test_a_new_parameter_changes_no_points_name(monkeypatch):
    before = points.point_name(STUDY, DEFAULTS | {"batch_size": 16})
    outer, inner = points.defaults(STUDY)
    monkeypatch.setattr(points, "defaults", lambda study: (outer | {"num_prefetched": 2}, inner))
    assert points.point_name(STUDY, DEFAULTS | {"batch_size": 16}) == before
    assert points.point_name(STUDY, DEFAULTS | {"batch_size": 16, "num_prefetched": 2}) == before
    assert points.point_name(STUDY, DEFAULTS | {"batch_size": 16, "num_prefetched": 3}) != before


@pytest.fixture
def edited(tmp_path, monkeypatch):
    """Change a text of MNIST's notebook in a copy of all notebooks; call it with the text and the new one."""
    shutil.copytree(layout.root() / "notebooks", tmp_path / "notebooks")

    def edit(line: str, new: str) -> None:
        path = tmp_path / "notebooks" / layout.notebook(STUDY).name
        source = path.read_text(encoding="utf-8")
        assert source.count(line) == 1
        path.write_text(source.replace(line, new), encoding="utf-8")
        monkeypatch.setattr(layout, "root", lambda: tmp_path)

    return edit


def test_a_default_that_a_user_edits_leaves_committed_points_alone_and_names_new_ones_by_it(edited):
    edited("batch_size: int = 64", "batch_size: int = 256")
    measured = sorted(COMMITTED.glob(f"{STUDY}/*/*.json"))
    assert len(measured) > 5
    for path in measured:
        assert points.point_name(STUDY, json.loads(path.read_text())["parameters"]) == path.parent.name
    name = points.point_name(STUDY, points.declared(STUDY) | {"device": "cpu"})
    assert name == points.point_name(STUDY, DEFAULTS | {"batch_size": 256})
    assert "batch_size_256" in name


@pytest.mark.parametrize(
    ("new", "shown"),
    [
        ("num_workers = 1", "parameter 'num_workers = 1'"),
        ("num_workers: int = os.cpu_count()", "parameter 'num_workers: int = os.cpu_count()'"),
        ("num_workers: int", "parameter 'num_workers: int'"),
        ("num_workers: int = = 1", "parameters, line 5: invalid syntax"),
    ],
)
def test_a_parameter_that_cannot_be_read_is_named_and_other_studies_go_on(edited, new, shown, command):
    edited("num_workers: int = 1", new)
    complaint = f"01_mnist_speedup.ipynb: {shown}; allowed: a name, a type and a literal, such as num_workers: int = 1"
    status, printed = command("plan", "--profile", "smoke", "--device", "cpu")
    assert (status, f"Skipped: {STUDY} ({complaint})" in " ".join(printed.split())) == (0, True)
    assert "MNIST" not in printed.partition("Skipped")[2].replace(complaint, "")
    status, printed = command("plan", "--profile", "smoke", "--device", "cpu", "--studies", STUDY)
    assert (status, complaint in " ".join(printed.split())) == (2, True)
    assert points.point_name(STUDY, DEFAULTS) == f"reference-cpu-{points.point_name(STUDY, DEFAULTS)[-8:]}"


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


@pytest.mark.parametrize("name", ["network", "loader", "loss"])
def test_of_a_users_file_the_folder_is_not_published_and_does_not_count(name):
    given = points.declared("your_network") | {"device": "cpu"}
    here, there = (given | {name: f"{folder}/own.py:make"} for folder in ("/home/me", "C:\\private"))
    assert points.public(here)[name] == points.public(there)[name] == "own.py:make"
    assert points.point_name("your_network", here) == points.point_name("your_network", there)


def test_texts_in_arguments_are_written_as_digests_and_tell_points_apart():
    def made(arguments, network="net.py:network"):
        return {**points.declared("your_network"), "device": "cpu", "network": network, "arguments": arguments}

    secret, other = made("width=6, token='hf_secret', parts=[1, '/home/me']"), made("width=6, token='hf_other'")
    public = points.public(secret)
    name = points.point_name("your_network", secret)
    assert not any(word in f"{public} {name}" for word in ("hf_secret", "/home", "me'"))
    assert re.fullmatch("sha256_[0-9a-f]{8}", public["arguments"])
    assert points.point_name("your_network", public) == name != points.point_name("your_network", other)
    named = "model_name='resnet50', pretrained=False"
    assert points.public(made(named, "timm:create_model"))["arguments"] == named  # it tells what was measured
    for hidden in (f'{named}, token=b"key"', "model_name='resnet50\\'key'", "model_name='/home/me'"):
        assert "sha256_" in points.public(made(hidden, "timm:create_model"))["arguments"]
    for text in ("width=6,depth=2", "[" * 3000, "1 +", "a" * 99):
        assert points.public(made(text))["arguments"] == text
