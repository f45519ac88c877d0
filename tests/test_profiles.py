import ast
import contextlib
import itertools
import warnings
from dataclasses import dataclass
from typing import Annotated

import pytest
import yaml
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from pydantic import Field

from benchbook.frameworks import devices, survey
from benchbook.frameworks.devices import Device, DeviceUnavailable, FrameworkMissing
from benchbook.machine import layout
from benchbook.running import profile_files, profiles
from benchbook.studies.experiments import parameters
from benchbook.studies.experiments.parameters import BUDGET, declared, nested, point_name
from benchbook.studies.experiments.plan import StudyPlan
from made.cells import write_notebook
from made.small import EVERY, PLANS, has


@dataclass(frozen=True, kw_only=True)
class Toy(StudyPlan):
    FRAMEWORKS, DATASETS = ("torch",), ()
    VARIANTS = ("reference", "controlled", "tuned")

    rate: Annotated[float, Field()] = 0.5


COMMITTED = sorted(path.stem for path in (layout.root() / "notebooks" / "profiles").glob("*.yaml"))
VARIANTS = {study: plan.VARIANTS for study, plan in PLANS.items()} | {"calibrate": ("",)}
# What a newcomer does not miss in `quick`: other workers alone, and searches but MNIST's.
LEFT_OUT = {(study, "controlled") for study in ("simclr_epochs", "gpt_tokens")}
LEFT_OUT |= {(study, "tuned") for study in VARIANTS if study not in ("calibrate", "mnist_speedup")}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one study, `toy`, on a machine with a GPU; call it with a profile's content."""
    (tmp_path / "notebooks" / "profiles").mkdir(parents=True)
    monkeypatch.setattr(layout, "root", lambda: tmp_path)
    _has(monkeypatch, "cuda", "cpu")
    plan_of = parameters.plan_of
    monkeypatch.setattr(
        parameters, "plan_of", lambda study: Toy if study == "toy" else plan_of(study)
    )
    write_notebook(tmp_path / "notebooks" / "07_toy.ipynb", "# Title", "batch_size = 1")

    def write(*points: dict, **entry) -> None:
        content = {"toy": {"time_limit_minutes": 1, "points": list(points)} | entry}
        (tmp_path / "notebooks" / "profiles" / "mine.yaml").write_text(yaml.safe_dump(content))

    write({})
    return write


def _has(monkeypatch, *kinds: str, count: int = 1) -> None:
    """Let torch have devices of these kinds, and the other installed frameworks a CPU."""
    has(monkeypatch, dict.fromkeys(devices.installed(), ("cpu",)) | {"torch": kinds}, count)


# Points, what they share, the device that is chosen, and the batch size, rate and device of each
# point that is run.
EXPANDED = """
- [[{batch_size: [8, 16], rate: [0.1, 0.2]}], {device: cpu}, all, 8 0.1 cpu; 8 0.2 cpu; 16 0.1 cpu; 16 0.2 cpu]
- [[{batch_size: 8}, {rate: 0.1}], {device: cpu, batch_size: 32}, all, 8 0.5 cpu; 32 0.1 cpu]
- [[{batch_size: [16, 32]}, {batch_size: 16}], {device: cpu}, all, 16 0.5 cpu; 32 0.5 cpu]
- [[{batch_size: [16, 32]}], {}, all, 16 0.5 cuda; 16 0.5 cpu; 32 0.5 cuda; 32 0.5 cpu]
- [[{}, {batch_size: 2, device: cuda}, {batch_size: 3, device: cpu}], {}, cpu, 64 0.5 cpu; 3 0.5 cpu]
- [[{device: best}], {}, all, 64 0.5 cuda]
- [[{device: best}], {}, cpu, 64 0.5 cpu]  # unless another one is chosen
- [[{device: [mps, cuda, tpu]}, {device: [mps]}], {}, all, 64 0.5 cuda]  # a list stands for those that are there
- [[{device: [mps, cuda, tpu]}], {}, cpu, ""]
"""


@pytest.mark.parametrize(("own", "shared", "device", "expected"), yaml.safe_load(EXPANDED))
def test_lists_and_devices_expand_to_one_point_each(project, own, shared, device, expected):
    project(*own, parameters=shared)
    points = profiles.read("mine", device=device)
    found = ("{batch_size} {rate} {device}".format_map(point.parameters) for point in points)
    assert "; ".join(found) == expected
    assert len({point.name for point in points}) == len(points)


@pytest.mark.parametrize("chosen", ["mps", "tpu"])
def test_device_that_is_not_here_is_an_error_that_names_it_and_what_is_allowed(project, chosen):
    with pytest.raises(DeviceUnavailable, match=f"'{chosen}'.*allowed: all, cuda, cpu"):
        profiles.read("mine", device=chosen)
    project({"device": chosen})
    with pytest.raises(DeviceUnavailable, match=f"'{chosen}'.*allowed: best, cuda, cpu"):
        profiles.read("mine")


@pytest.mark.parametrize(
    ("profile", "studies", "message"),
    [
        ("mine", "toy other", "'other'; allowed: all, toy"),
        ("mine", " ", r"studies is empty: ' '; allowed: all, toy"),
        ("yours", "all", "'yours'; allowed: mine"),
    ],
)
def test_an_unknown_study_or_profile_is_an_error_that_says_what_is_allowed(
    project, profile, studies, message
):
    with pytest.raises(ValueError, match=message):
        profiles.read(profile, studies)


@pytest.mark.parametrize("profile", [name for name in COMMITTED if name != "full"])
def test_committed_profile_names_every_study_and_variant(monkeypatch, profile):
    _has(monkeypatch, "mps", "cpu")
    points = profiles.read(profile)
    found = {(point.study, point.parameters.get("variant", "")) for point in points}
    wanted = {(study, variant) for study, variants in VARIANTS.items() for variant in variants}
    assert found == (wanted - LEFT_OUT if profile == "quick" else wanted)
    assert len({point.key for point in points}) == len(points)
    assert points[0].study != "calibrate"  # the first number waits for nothing else


COMPUTERS = {
    name: {framework: (*filter("cpu".__ne__, [kind]), "cpu") for framework, kind in kinds.items()}
    for name, kinds in yaml.safe_load("""
CPU: {torch: cpu, tensorflow: cpu, jax: cpu}
Mac: {jax: cpu, torch: mps, tensorflow: metal, mlx: metal}
NVIDIA: {torch: cuda, tensorflow: cuda, jax: cuda}
NVIDIA on ARM: {torch: cuda, jax: cuda}
AMD: {tensorflow: cpu, jax: cpu, torch: rocm}
Intel: {tensorflow: cpu, jax: cpu, torch: xpu}
TPU: {torch: cpu, jax: tpu}
""").items()
}


@pytest.mark.parametrize("profile", COMMITTED)
@pytest.mark.parametrize("name", COMPUTERS)
def test_a_profile_has_points_of_every_study_that_the_accelerator_can_run_however_many_there_are(
    monkeypatch, profile, name
):
    content, computer = profile_files.read(layout.profile(profile)), COMPUTERS[name]
    kinds = {kind for own in computer.values() for kind in own} - (
        {"cpu"} if name != "CPU" else set()
    )
    drives = {framework for framework, own in computer.items() if kinds & {*own}}
    written = {
        study: set(PLANS[study].FRAMEWORKS) if study in PLANS else {"torch"} for study in content
    }
    written["calibrate"] = set(devices.FRAMEWORKS)
    able = {study for study in content if written[study] & drives}
    if profile == "full":  # which trains on accelerators alone
        able = able if name != "CPU" else {"calibrate"}
    for count in (1, 2, 8) if name != "CPU" else (1,):
        has(monkeypatch, computer, count)
        points = [point for point in profiles.read(profile) if point.parameters["device"] in kinds]
        assert {
            point.study for point in points if point.parameters.get("device_count", 1) <= count
        } == able
        # All devices train together, with a batch for each; on several, `quick` begins with it.
        each = {"TPU": 128, "NVIDIA": 256, "AMD": 256, "Intel": 256}.get(name.partition(" ")[0])
        sizes = [
            (point.parameters.get("device_count"), point.parameters.get("batch_size"))
            for point in points
            if point.study == "resnet50_cost"
        ]
        if each and profile == "quick":
            assert sizes[0] == (count, each * count)
        elif name == "TPU" and profile != "smoke":
            assert (count, each * count) in sizes


def test_of_all_studies_those_whose_framework_is_missing_are_left_out(monkeypatch):
    def ask(framework):
        if framework == "torch":
            raise FrameworkMissing("torch cannot be imported here")
        return survey.Answer((Device("tpu", "a chip"), Device("cpu", "a chip")))

    monkeypatch.setattr(survey, "ask", ask)
    monkeypatch.setattr(devices, "installed", lambda: ("jax",))
    points = profiles.read("quick")
    trained = {"mobilenetv2_energy", "resnet50_cost", "segmentation_scaling"}
    assert {point.study for point in points} == {"calibrate", *trained}
    assert {point.parameters["framework"] for point in points} == {"jax"}
    for named in ("mnist_speedup", "calibrate mnist_speedup"):
        with pytest.raises(FrameworkMissing, match="'torch' is not installed"):
            profiles.read("quick", named)


@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_mlx_has_points_beside_torchs_where_the_gpu_is_apples_and_none_elsewhere(
    monkeypatch, profile
):
    studies = {"calibrate", "mnist_speedup", "gpt_tokens"}
    for computer, able in (
        (COMPUTERS["Mac"], studies),
        (COMPUTERS["NVIDIA"] | {"mlx": ("cpu",)}, set()),
    ):
        has(monkeypatch, computer)
        points = {
            (point.study, point.framework, point.parameters["device"])
            for point in profiles.read(profile)
        }
        assert {study for study, framework, _ in points if framework == "mlx"} == able
        wanted = {(study, *on) for study in able for on in (("mlx", "metal"), ("torch", "mps"))}
        assert wanted <= points  # it is compared with torch


# An article's own setting on its kinds of device: the same in both profiles, and further in one.
ARTICLES = """
- [mnist_speedup, cpu mps cuda, {batch_size: 64}, {}, {}]
- [vae_stability, mps, {batch_size: 128, num_parity_steps: 31}, {num_windows: 6}, {num_windows: 10}]
- [mobilenetv2_energy, metal cuda, &net {framework: tensorflow, batch_size: 64, image_size: 128, dataset: cifar10,
    weights: imagenet, trainable: true}, {}, {}]
- [mobilenetv2_energy, metal cuda, {<<: *net, trainable: false}, {}, {}]
- [mobilenetv2_energy, metal, {<<: *net, image_size: 224}, {}, {}]
- [simclr_epochs, cpu mps cuda, {batch_size: 128}, {}, {num_windows: 2}]
- [segmentation_scaling, metal cuda, &unet {framework: tensorflow, batch_size: 16, image_size: 512, precision: fp32},
    {}, {}]
- [segmentation_scaling, metal cuda, {<<: *unet, precision: amp_fp16}, {}, {}]
- [resnet50_cost, cuda, {precision: amp_fp16}, {batch_size: 2048, device_count: 8}, {batch_size: 1024, device_count: 4}]
- [resnet50_cost, tpu, {precision: amp_bf16, batch_size: 1024, device_count: 8}, {}, {}]
"""


@pytest.mark.parametrize(("study", "kinds", "both", "quick", "paper"), yaml.safe_load(ARTICLES))
def test_each_articles_own_setting_is_a_point_on_its_kinds_of_device(
    monkeypatch, study, kinds, both, quick, paper
):
    has(monkeypatch, EVERY, 8)
    for profile, own in (("quick", quick), ("paper", paper)):
        points = profiles.read(profile, study)
        for kind in kinds.split():
            wanted = {"variant": "reference", "device": kind} | both | own
            assert [point for point in points if wanted.items() <= point.parameters.items()], (
                profile,
                kind,
            )


def test_a_framework_is_calibrated_right_after_the_first_study_that_uses_it(monkeypatch):
    has(monkeypatch, dict.fromkeys(("torch", "tensorflow"), ("cuda",)))
    order = [(point.study, point.parameters.get("framework")) for point in profiles.read("quick")]
    assert order[0][0] == "mnist_speedup"  # the first number waits for nothing else
    for name in ("torch", "tensorflow"):
        place = order.index(("calibrate", name))
        users = [study for study, framework in order if framework == name != study]
        assert order[place - 1][0] == next(filter("calibrate".__ne__, users))
        assert order[place + 1][0] != order[place - 1][0]


def test_quick_has_no_short_window_and_an_interval_for_each_point(monkeypatch):
    _has(monkeypatch, "cpu")
    measured = [point for point in profiles.read("quick") if point.study != "calibrate"]
    for given in (point.parameters for point in measured):  # none is an epoch of a tiny set
        assert given["window_seconds"] >= 1.0 or given["samples_per_window"] >= 128
    assert {point.parameters["fewest_processes"] for point in measured} == {
        2
    }  # which have an interval
    assert {point.parameters["processes_part"] for point in measured} == {0.09}
    assert min(point.parameters["num_processes"] for point in measured) == 2
    assert {point.study for point in measured} == {*PLANS}  # each has a point on a CPU


@pytest.mark.parametrize("study", VARIANTS)
def test_a_notebook_shows_the_parameters_of_its_studys_plan(study):
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # papermill's own imports warn; this test is about what it finds
        import papermill

        found = papermill.inspect_notebook(str(layout.notebook(study)))
    shown, budgets = nested(study, declared(study)), {"quick": "str", "{}": "dict"}
    assert found.keys() == shown.keys()
    chosen = found.pop(BUDGET)
    assert budgets[chosen["default"].strip("'\"")] == chosen["inferred_type_name"]
    assert all(ast.literal_eval(entry["default"]) == shown[name] for name, entry in found.items())
    assert all(
        entry["inferred_type_name"] == type(shown[name]).__name__ for name, entry in found.items()
    )
    assert all(entry["help"] for entry in found.values())


# What papermill puts into a notebook, and the complaint; papermill's -p passes a budget as text.
GIVEN = r"""
- [{batch_sise: 128}, "has no parameter 'batch_sise' .value 128.; allowed: variant, "]
- [{num_windows: 3}, "num_windows is a key of budget; allowed: budget={'num_windows': 3}"]
- [{budget: {windows: 3}}, "budget has no key 'windows' .value 3.; allowed: num_processes, "]
- [{budget: {num_windows: "3"}}, "num_windows is '3'; allowed: a valid integer"]
- [{data_resident: 1}, "data_resident is 1; allowed: a valid boolean"]
- [{batch_size: 0}, "batch_size is 0; allowed: greater than"]
- [{budget: 3}, "budget is 3; allowed: a profile's name or a dict of its keys"]
- [{budget: quickly}, "unknown profile 'quickly'; allowed: "]
- [{budget: '{"windows": 3}'}, "budget has no key 'windows' .value 3.; allowed: num_processes, "]
- [{budget: '{"num_windows": 3'}, "unknown profile '{\"num_windows\": 3'; allowed: "]
- [{batch_size: 128, data_resident: true, budget: {num_windows: 3}}, ""]
- [{batch_size: 128, data_resident: true, budget: '{"num_windows": 3}'}, ""]
"""


@pytest.mark.parametrize(("given", "complaint"), yaml.safe_load(GIVEN))
def test_a_notebook_refuses_what_papermill_put_into_it(given, complaint):
    notebook = parameterize_notebook(
        load_notebook_node(str(layout.notebook("mnist_speedup"))), given
    )
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    names = nested("mnist_speedup", declared("mnist_speedup")) | given | {"In": ["", *cells[:3]]}
    with pytest.raises(ValueError, match=complaint) if complaint else contextlib.nullcontext():
        collected = profiles.collect("mnist_speedup", names)
        assert (collected["batch_size"], collected["num_windows"]) == (128, 3)
        assert collected.keys() == profiles.declared("mnist_speedup").keys()


def test_a_budget_may_be_the_one_that_a_profile_has_for_the_study():
    shared = profile_files.read(layout.profile("paper"))["mnist_speedup"]["parameters"]["budget"]
    assert shared["num_parity_steps"] == 20
    assert (
        profiles.flat("mnist_speedup", {"batch_size": 2, "budget": "paper"})
        == {"batch_size": 2} | shared
    )


def test_a_points_budget_goes_key_by_key_before_its_studys_and_nobody_looks_on(project):
    project(
        {"budget": {"num_windows": 4}},
        {"budget": {"explore": True}},
        parameters={"budget": {"try_seconds": 0.5}},
    )
    first, second = [
        point for point in profiles.read("mine") if point.parameters["device"] == "cpu"
    ]
    assert [first.parameters[key] for key in ("num_windows", "try_seconds", "explore")] == [
        4,
        0.5,
        False,
    ]
    assert [second.parameters[key] for key in ("num_windows", "try_seconds", "explore")] == [
        1,
        0.5,
        True,
    ]
    assert first.name != second.name == point_name("toy", declared("toy") | {"device": "cpu"})
    project({"budget": {"num_window": 4}})
    with pytest.raises(
        ValueError, match=r"^mine\.yaml: toy: budget has no key 'num_window' .value 4.; al"
    ):
        profiles.read("mine")


BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}]\n" for old, new in itertools.pairwise("abcdefghijk")
)
MANY = str(list(range(1, 33)))
GOOD = "toy: {{time_limit_minutes: 1, points: [{{{}}}]}}"  # with the parameters of a point
WHOLE = r"""
- toy => the whole is \['toy'\]; allowed: a valid dictionary
toy: => toy is None; allowed: a valid dictionary
toy: [1 => is not YAML .*line 1
toy: !!python/object/apply:os.system ['true'] => is not YAML .*python/object
!!bool toy: 1 => is not YAML
toy: café => is not YAML
toy: {time_limit_minutes: -1, points: [{device: cpu}]} => toy.time_limit_minutes is -1
toy: {time_limit_minutes: soon, points: [{device: cpu}]} => toy.time_limit_minutes is 'soon'
toy: {time_limit_minutes: 2020-01-01, points: [{device: cpu}]} => toy.time_limit_minutes is datetime
toy: {time_limit_minutes: 1, points: [{device: cpu}], parameters: 3} => toy.parameters is 3; allowed: a valid dictionary
toy: {time_limit_minutes: 1, points: [{device: cpu}], colour: red} => toy.colour is unknown; allowed: points, parameters
toy: {points: [{}]} => toy.time_limit_minutes is missing
toy: {time_limit_minutes: 1, points: []} => toy.points is \[\]; allowed: at least 1 item
toy: {time_limit_minutes: 1, points: [cpu]} => toy.points\[0\] is 'cpu'; allowed: a valid dictionary
absent: {time_limit_minutes: 1, points: [{device: cpu}]} => unknown study 'absent'
"""
POINTS = rf"""
batchsize: 32 => toy has no parameter 'batchsize' .value 32.; allowed: variant, device, batch_size
batch_size: [] => toy has 0 points; allowed: 1 to 1000
batch_size: {{a: 1}} => toy: batch_size is .'a': 1.; allowed: a valid integer
batch_size: [[1]] => toy: batch_size is \[1\]; allowed: a valid integer
budget: {{num_windows: [1, 2]}} => toy: num_windows is .1, 2.; allowed: a valid integer
1: 2 => toy.points.0..1. is 1; allowed: Keys should be strings
rate: .inf => toy: rate is inf; allowed: a finite number
batch_size: {MANY}, num_windows: {MANY} => toy has 1024 points; allowed: 1 to 1000
device: cpu, batch_size: [16, many] => toy: batch_size is 'many'
device: [cpu, gpu2] => toy: device is 'gpu2'; allowed: 'best', 'all', 'accelerator', 'gpu',
"""
BROKEN = dict(line.split(" => ") for line in WHOLE.strip().splitlines())
BROKEN |= {
    GOOD.format(own): words
    for own, words in (line.split(" => ") for line in POINTS.strip().splitlines())
}
BROKEN |= {
    "": "the whole is None; allowed: a valid dictionary",
    "toy:\n\tpoints: 1": "is not YAML .*line 2",
    BOMB: r"a is \['x', 'x'\]; allowed: a valid dictionary",
    "[" * 1000 + "]" * 1000: "is not YAML .maximum recursion",
}


def test_an_unknown_framework_in_a_profile_is_named_with_its_place(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text(
        GOOD.format("framework: [torch, torch2]").replace("toy", "mnist_speedup")
    )
    monkeypatch.setattr(layout, "profile", lambda name: [tmp_path / "mine.yaml"])
    with pytest.raises(
        ValueError, match=r"^mine\.yaml: mnist_speedup: framework is 'torch2'; allowed: 'torch'"
    ):
        profiles.read("mine")


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: repr(text[-40:]))
def test_a_profile_that_cannot_be_meant_is_one_line_with_its_place(project, monkeypatch, text):
    monkeypatch.setattr(
        survey, "ask", lambda name: pytest.fail("a framework was asked before the profile was read")
    )
    (layout.root() / "notebooks" / "profiles" / "mine.yaml").write_text(text, "latin-1")
    with pytest.raises(ValueError, match=rf"^mine\.yaml:? {BROKEN[text]}") as caught:
        profiles.read("mine")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
