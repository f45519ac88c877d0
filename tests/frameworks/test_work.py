"""The work of every study's own loop: what a clock cannot see, and float64 cannot where it
shares the network's source.

Losses are pinned for made-up weights and one made-up batch, in float64, so that they hold on any
CPU.
"""

import importlib
import itertools
import re

import numpy
import pytest
import yaml

from benchbook import datasets
from benchbook.frameworks import devices
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.measuring import float64, parity, protocol
from benchbook.studies.gpt_tokens import network_torch as gpt
from benchbook.studies.mobilenetv2_energy.plan import Plan as MobileNetV2
from made import plants
from made.fakes import run
from made.small import PLANS, build, made

# JAX compiles each of these networks for half a minute, and TensorFlow a step of the two for long.
KERAS_TAKES_LONG = ("jax", ("tensorflow", "resnet50_cost"), ("tensorflow", "mobilenetv2_energy"))
ALL = "torch", "tensorflow", "jax", "mlx"
pytestmark = pytest.mark.frameworks(*ALL, slow=KERAS_TAKES_LONG)
IN_TORCH = pytest.mark.frameworks("torch")

LOSSES = yaml.safe_load("""
gpt_tokens: {torch: 4.97987010459112}
mnist_speedup: {torch: 12.97197974801983}
mobilenetv2_energy: {torch: 11.25526179084063, keras: 14.26569130112436}
resnet50_cost: {torch: 22.120585320519936, keras: 38.709310314520046}
segmentation_scaling: {keras: 1.1825384390741949}
simclr_epochs: {torch: 2.6150657559465897}
vae_stability: {torch: 8147.637109774718}
""")
CLASSES = {"nanogpt_char_small": 65, "unet_triangles": 2}  # by model; of others 3
WHOLE = {
    "mobilenetv2_energy": {"trainable": True}
}  # a head alone sees hardly anything of random features


def host(part) -> numpy.ndarray:
    return numpy.asarray(part)


def digests(images) -> set[bytes]:
    return {image.tobytes() for image in host(images)}


def faults(workload) -> list[str]:
    """Return what is wrong with an epoch's batches, an evaluation and a step; the workload stays
    unchanged."""
    fresh, found = workload.snapshot(), []
    workload.enter()
    batches = list(workload.batches(0))
    sizes, samples = [len(batch[0]) for batch in batches], sum(map(workload.num_samples, batches))
    images, tests = (
        set().union(*(digests(batch[0]) for batch in batches)),
        [*workload.test_batches()],
    )
    if sizes[:-1] != [workload.batch_size] * (len(sizes) - 1):
        found.append(f"batches of {sizes}")
    if (
        samples != sum(sizes)
        or not 0 <= workload.description()["dataset_samples"] - samples < workload.batch_size
    ):
        found.append(f"{samples} samples counted, {sum(sizes)} images")
    if len(images) != sum(sizes):
        found.append(f"{len(images)} of {sum(sizes)} images are distinct")
    if images & set().union(*(digests(batch[0]) for batch in tests)):
        found.append("test images are training images")
    for batch in batches:  # a network that knows nothing may have one loss for all labels
        workload.step(batch)
    trained = workload.snapshot()
    if workload.plain.labels and depends_on_batches(workload, tests[0]):
        found.append("evaluation in training mode, or of batches that count alike")
    if any(
        is_unused(workload, trained, batches[0], place)
        for place in (0, len(host(batches[0][0])) - 1)
    ):
        found.append("part of a batch is not trained on")
    workload.restore(fresh)
    return found


def depends_on_batches(workload, batch: tuple) -> bool:
    """Return whether images' loss and accuracy depend on their batches: in training mode, or where
    batches count alike that are not."""
    own, count, found = workload.test_batches, len(host(batch[0])), []
    whole = [*range(count)]
    for parts in ([whole], [whole[: count // 3], whole[count // 3 :]]):
        workload.test_batches = lambda parts=parts: (taken(batch, part) for part in parts)
        tested = workload.evaluate()
        found.append([float(tested.loss), float(tested.accuracy)])
    workload.test_batches = own
    return found[0] != pytest.approx(found[1], rel=1e-4, nan_ok=True)


def is_unused(workload, state: dict, batch: tuple, place: int) -> bool:
    """Return whether a step's loss stays the same with another image, and with another label, at
    a place."""
    labels, whole = host(batch[-1]), list(range(len(host(batch[0]))))
    other = next(index for index in whole if not numpy.array_equal(labels[index], labels[place]))
    order = [*whole[:place], other, *whole[place + 1 :]]

    def loss(images: list[int], labels: list[int]) -> float:
        workload.restore(state)
        return workload.mean_loss(
            [workload.step((*taken(batch[:1], images), *taken(batch[1:], labels)))]
        )

    base = loss(whole, whole)
    return (
        loss(order, whole) == loss(whole, order) == base
        if len(batch) > 1
        else loss(order, whole) == base
    )


def taken(batch: tuple, order: list[int]) -> tuple:
    """Return a batch in another order: torch tensors stay such, others become NumPy arrays."""
    return tuple(
        part[order] if hasattr(part, "is_floating_point") else host(part)[order] for part in batch
    )


def test_a_loop_trains_on_every_image_and_tests_on_others_in_inference_mode(study, framework):
    assert faults(made(study, framework)) == []


def large(framework: str):
    """Return a workload with about twenty batches in an epoch, each larger than those that
    parity compares."""
    if framework == "torch":
        return plants.tiny(count=480, batch_size=24)
    device = devices.pick("cpu", framework)
    shapes = datasets.load("shapes").with_tests(64)
    return MobileNetV2.build(
        shapes,
        device,
        image_size=32,
        batch_size=24,
        num_workers=0,
        trainable=True,
        weights="random",
    )


@pytest.mark.frameworks("torch", "tensorflow", "jax", slow=("tensorflow", "jax"))
@pytest.mark.parametrize("plant", [None, *plants.OF_WORK])
def test_a_planted_fault_of_the_work_is_found(framework, plant, tmp_path):
    workload = large(framework)
    if plant:
        plants.OF_WORK[plant](workload)
    fresh, batch = workload.snapshot(), next(iter(workload.batches(0)))
    for _ in range(32):  # some faults begin late
        workload.step(batch)
    workload.restore(fresh)
    found = faults(workload)
    if not found and not parity.check(workload, run(tmp_path), 1).passed:
        found = ["differs from float64"]
    print(plant, found)
    assert bool(found) == bool(plant)


@pytest.mark.frameworks("torch", "mlx")
@pytest.mark.parametrize("is_planted", [False, True])
def test_a_step_that_drops_half_of_each_sequence_is_found(framework, is_planted, tmp_path):
    workload = build("gpt_tokens", framework, parity_batch_size=4)
    if is_planted:
        plants.half_sequences(workload)
    verdict = parity.check(workload, run(tmp_path), 1)
    assert verdict.passed is not is_planted, verdict.reason


@IN_TORCH
def test_a_readers_network_takes_the_place_of_the_studys_and_is_compared_with_itself(
    study, framework, tmp_path
):
    module = importlib.import_module(f"benchbook.studies.{study}.network_torch")
    own = type("Own", (module.Network,), {"__module__": "__main__"})
    variant = "controlled" if "controlled" in PLANS[study].VARIANTS else "reference"
    workload = build(study, framework, variant=variant, network_class=own)
    assert type(workload.model) is own
    assert workload.description()["model"] == "yours"
    assert (workload.step.__name__ == "plain_step") == PLANS[study].PLAIN_STEP
    assert parity.check(workload, run(tmp_path), 1).passed
    if study not in ("resnet50_cost", "simclr_epochs"):  # which take seconds
        plants.half_batches(workload)
        assert not parity.check(workload, run(tmp_path), 1).passed


def fixed_loss(workload) -> float:
    """Return the plain network's loss in float64, with made-up weights and a made-up batch in
    place of its own."""
    framework = workload.device.framework
    with workload.compared() as subject:
        batch = (
            workload.plain.noise(subject.batches(1)[0], 0)
            if workload.plain.noise
            else subject.batches(1)[0]
        )
        shapes = subject.to_host(batch)
        make = float64.Torch if framework == "torch" else float64.Keras
        named = {} if framework == "torch" else {"framework": framework}
        network = make(workload.plain, subject.weights(), subject.statistics(), **named)
        begun = subject.weights()
    classes = CLASSES.get(workload.description()["model"], 3)
    inputs, target = workload.plain.inputs(
        tuple(made_up(part, place, classes) for place, part in enumerate(shapes))
    )
    _, gradients, _ = network.differentiate(inputs, target)
    network.load({name: weight(begun[name], place) for place, name in enumerate(gradients)}, {})
    return network.differentiate(inputs, target)[0]


def made_up(part: numpy.ndarray, place: int, classes: int) -> numpy.ndarray:
    """Return numbers for a part of a batch: 0 to 1, bytes of pixels, or classes."""
    random = numpy.random.default_rng(place).random(part.shape)
    if part.dtype.kind == "f":
        return random
    return (random * (256 if place == 0 and part.ndim == 4 else classes)).astype(part.dtype)


def weight(array: numpy.ndarray, seed: int) -> numpy.ndarray:
    """Return numbers for a parameter: small ones around its own mean, or those of a kernel."""
    random = numpy.random.default_rng([seed, 1]).uniform(-1, 1, array.shape)
    if array.ndim < 2:
        return array.mean().round() + 0.1 * random
    return random * (3 * max(array.shape[0], array.shape[-1]) / array.size) ** 0.5


@pytest.mark.frameworks("torch", "tensorflow", "jax", slow=("jax",))  # torch's is MLX's, too
def test_a_fixed_batch_has_the_pinned_loss(study, framework):
    found = fixed_loss(build(study, framework, **WHOLE.get(study, {})))
    if study not in LOSSES:
        pytest.skip(f"a study of yours: {found!r} may be pinned in LOSSES")
    assert found == pytest.approx(LOSSES[study][FRAMEWORKS[framework].library], rel=1e-6)


def moved(workload) -> tuple[set[str], set[str]]:
    """Return the names of the weights that two steps change, and of all others."""
    with workload.compared() as subject:
        before = subject.weights()
        for batch in subject.batches(2):
            subject.step(subject.plain.noise(batch, 0) if subject.plain.noise else batch)
        after = subject.weights()
    changed = {name for name in before if not numpy.array_equal(before[name], after[name])}
    return changed, before.keys() - changed


@IN_TORCH
def test_adapters_alone_are_trained_and_frozen_weights_that_train_are_found(framework, monkeypatch):
    changed, frozen = moved(build("gpt_tokens", "torch", lora_rank=2))
    assert {name.rpartition(".")[2] for name in changed} == {"up", "down"}
    assert len(frozen) == 27
    draw = gpt.Network.draw
    monkeypatch.setattr(
        gpt.Network, "draw", lambda model, *given: draw(model.requires_grad_(True), *given)
    )
    assert moved(build("gpt_tokens", "torch", lora_rank=2))[1] == set()


REFUSED = {  # a fault of the loader's batches, and what the user sees
    "half the image size": (
        "mobilenetv2_energy",
        lambda images, labels: (images[:, :, ::2, ::2], labels),
        "image_size 32, but the first batch has 8 samples and shape (8, 3, 16, 16)",
    ),
    "half of each sequence": (
        "gpt_tokens",
        lambda *parts: tuple(part[:, :8] for part in parts),
        "sequence_length 16, but the first batch has 8 samples and shape (8, 8)",
    ),
    "half of each batch": (
        "mnist_speedup",
        lambda *parts: tuple(part[:4] for part in parts),
        "batch_size 8, but the first batch has 4 samples and shape (4, 1, 28, 28)",
    ),
    "one view twice": (
        "simclr_epochs",
        lambda first, second: (first, first),
        "two views are equal in 100% of the pairs",
    ),
}


@IN_TORCH
@pytest.mark.parametrize("plant", REFUSED)
def test_a_run_refuses_a_first_batch_that_is_not_as_its_rows_say(framework, plant, record):
    study, change, message = REFUSED[plant]
    workload = build(study, framework)
    own = workload.train_batches
    workload.train_batches = lambda epoch: itertools.starmap(change, own(epoch))
    with pytest.raises(ValueError, match=re.escape(message)):
        protocol.warm_up(workload, record, 1)
    [row] = record.rows().to_dict("records")
    assert (row["phase"], row["status"]) == ("compile", "crashed")
    assert message in row["message"]


@IN_TORCH
@pytest.mark.parametrize("variant", ["tuned", "controlled"])
def test_a_run_refuses_views_of_different_images(framework, variant):
    data = datasets.load("shapes")
    workers = {"num_workers": 1} if variant == "controlled" else {}
    workload = build(
        "simclr_epochs", framework, data=data, batch_size=128, variant=variant, **workers
    )
    first, second = next(iter(workload.batches(0)))
    workload.check_batch((first, second))
    with pytest.raises(ValueError, match="two views of a pair are not of one image"):
        workload.check_batch((first, second.roll(1, 0)))


@IN_TORCH
def test_a_run_whose_steps_change_no_weight_is_refused(framework, record):
    workload = plants.tiny()
    plants.no_update(workload)
    with pytest.raises(ValueError, match="no weight changed in 1 training steps"):
        protocol.warm_up(workload, record, 1)
