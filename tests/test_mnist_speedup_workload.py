import functools
import pickle

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import RandomSampler, SequentialSampler

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings
from benchbook.studies.datasets import Dataset
from benchbook.studies.mnist_speedup import network_torch
from benchbook.studies.mnist_speedup import plan as mnist
from fakes import CPU

pytestmark = pytest.mark.usefixtures("own_random_state")

MPS, CUDA = Device("mps", "an Apple GPU"), Device("cuda", "an NVIDIA GPU")


@pytest.fixture(scope="module")
def tiny():
    draw = numpy.random.default_rng(0)
    images = draw.integers(0, 256, (70, 28, 28), dtype=numpy.uint8)
    labels = numpy.arange(70) % 10
    return Dataset("random", images[:50], labels[:50], images[50:], labels[50:])


@pytest.fixture
def without_moving(monkeypatch):
    """Let a workload be built for an accelerator that is not here."""
    monkeypatch.setattr(network_torch.Network, "to", lambda self, kind: self)
    monkeypatch.setattr(network_torch, "flops_per_sample", lambda model, inputs: 0.0)


def _controlled(tiny, device=CPU, **options):
    return mnist.build(tiny, device, "controlled", **{"num_workers": 0, "batch_size": 16} | options)


def _labels(workload, epoch: int) -> list[int]:
    return torch.cat([labels for _, labels in workload.batches(epoch)]).tolist()


def test_network_has_the_published_number_of_parameters(tiny):
    assert mnist.build(tiny, CPU).description()["parameters"] == 1_199_882


def test_network_computes_what_an_independent_one_computes_with_its_weights():
    network = network_torch.Network().eval()
    independent = nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
        nn.LogSoftmax(dim=1),
    ).eval()
    own = network.state_dict()
    names = ["convolution1", "convolution2", "dense1", "dense2"]
    values = [own[f"{name}.{part}"] for name in names for part in ("weight", "bias")]
    independent.load_state_dict(dict(zip(independent.state_dict(), values, strict=True)))
    images = torch.randn(5, 1, 28, 28)
    outputs = network(images)
    torch.testing.assert_close(outputs, independent(images))
    torch.testing.assert_close(outputs.exp().sum(dim=1), torch.ones(5))


@pytest.mark.parametrize(("name", "kept"), [("dropout1", 0.75), ("dropout2", 0.5)])
def test_network_drops_a_quarter_and_then_a_half_while_it_trains(name, kept):
    network, seen = network_torch.Network(), []
    getattr(network, name).register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    network(torch.randn(64, 1, 28, 28))
    ((before, after),) = seen
    share = (after[before > 0] > 0).float().mean().item()
    assert share == pytest.approx(kept, abs=0.05)


def test_step_is_a_step_of_adadelta_as_its_formula_says(tiny):
    workload = _controlled(tiny, data_resident=True)
    network, batch = workload.model.eval(), next(iter(workload.batches(0)))  # eval: no dropout to be the same
    weights = network.dense2.weight
    before = weights.detach().clone()
    square_average = accumulated = torch.zeros_like(before)
    for _ in range(2):
        # https://docs.pytorch.org/docs/stable/generated/torch.optim.Adadelta.html: rho 0.9, epsilon 1e-6, no decay
        gradient = torch.autograd.grad(F.nll_loss(network(batch[0]), batch[1]), weights)[0]
        square_average = 0.9 * square_average + 0.1 * gradient**2
        change = (accumulated + 1e-6).sqrt() / (square_average + 1e-6).sqrt() * gradient
        accumulated = 0.9 * accumulated + 0.1 * change**2
        before = before - 1.0 * change
        workload.step(batch)
        torch.testing.assert_close(weights.detach(), before, rtol=1e-4, atol=1e-7)


def test_step_returns_the_loss_from_before_it_detached(tiny):
    workload = _controlled(tiny, data_resident=True)
    workload.model.eval()
    images, labels = batch = next(iter(workload.batches(0)))
    expected = -workload.model(images).detach()[range(16), labels].mean()
    loss = workload.step(batch)
    torch.testing.assert_close(loss, expected)
    assert not loss.requires_grad


def test_learning_rate_is_1_and_seven_tenths_after_each_epoch(tiny):
    workload = _controlled(tiny, data_resident=True)
    rates = []
    for epoch in range(3):
        rates.append(workload.optimizer.param_groups[0]["lr"])
        workload.step(next(iter(workload.batches(epoch))))
        workload.end_epoch()
    assert rates == pytest.approx([1.0, 0.7, 0.49])
    assert workload.epoch == 3
    assert isinstance(workload.optimizer, torch.optim.Adadelta)


def test_mean_loss_is_the_mean_of_all_steps(tiny):
    losses = [torch.tensor(value) for value in (1.0, 2.0, 6.0)]
    assert _controlled(tiny).mean_loss(losses) == 3.0


def test_loader_and_resident_images_hold_the_same_pixels(tiny):
    loaded = network_torch.TransformedImages(tiny.train_images, tiny.train_labels)
    resident = network_torch.pixels(tiny.train_images)
    by_hand = (tiny.train_images[7] / 255 - 0.1307) / 0.3081
    for index in (0, 7, 49):
        pixels, label = loaded[index]
        torch.testing.assert_close(torch.from_numpy(resident[index]), pixels, rtol=0, atol=1e-6)
        assert label == tiny.train_labels[index]
    torch.testing.assert_close(loaded[7][0][0].double(), torch.from_numpy(by_hand), rtol=0, atol=1e-6)
    assert resident.shape == (50, 1, 28, 28)


@pytest.mark.parametrize("data_resident", [True, False])
def test_an_epoch_gives_every_image_once(tiny, data_resident):
    workload = _controlled(tiny, data_resident=data_resident)
    batches = list(workload.batches(0))
    assert [workload.num_samples(batch) for batch in batches] == [16, 16, 16, 2]
    assert {images.shape[1:] for images, _ in batches} == {(1, 28, 28)}
    sums = torch.cat([images for images, _ in batches]).sum(dim=(1, 2, 3)).sort().values
    resident = torch.from_numpy(network_torch.pixels(tiny.train_images))
    torch.testing.assert_close(sums, resident.sum(dim=(1, 2, 3)).sort().values)


def test_reference_on_the_cpu_has_no_worker_and_does_not_shuffle(tiny):
    workload = mnist.build(tiny, CPU, "reference", num_workers=5)
    loader = workload.train_batches(0)
    assert (loader.num_workers, loader.pin_memory, loader.batch_size) == (0, False, 64)
    assert isinstance(loader.sampler, SequentialSampler)
    assert _labels(workload, 0) == _labels(workload, 3) == tiny.train_labels.tolist()
    assert workload.description()["num_workers"] == 0


@pytest.mark.parametrize("device", [MPS, CUDA])
def test_reference_on_an_accelerator_has_one_worker_and_shuffles(tiny, without_moving, device):
    workload = mnist.build(tiny, device, "reference", num_workers=5)
    loader = workload.train_batches(0)
    assert (loader.num_workers, loader.pin_memory, loader.batch_size) == (1, device.kind == "cuda", 64)
    assert isinstance(loader.sampler, RandomSampler)
    assert workload.test_batches().batch_size == 1000
    assert workload.description()["num_workers"] == 1


@pytest.mark.parametrize("device", [CPU, MPS, CUDA])
def test_controlled_shuffles_with_the_same_workers_on_every_device(tiny, without_moving, device):
    workload = mnist.build(tiny, device, "controlled", num_workers=2)
    loader = workload.train_batches(0)
    assert loader.num_workers == 2
    assert isinstance(loader.sampler, RandomSampler)
    assert list(loader.sampler) == list(mnist.build(tiny, CPU, "controlled").train_batches(0).sampler)
    assert workload.description()["num_workers"] == 2


@pytest.mark.parametrize("data_resident", [True, False])
def test_order_depends_on_seed_and_epoch_alone(tiny, data_resident):
    workload = _controlled(tiny, data_resident=data_resident)
    first, second = _labels(workload, 0), _labels(workload, 1)
    torch.rand(100)
    assert _labels(workload, 0) == first
    assert _labels(_controlled(tiny, data_resident=data_resident), 1) == second
    assert len({tuple(first), tuple(second), tuple(tiny.train_labels)}) == 3
    assert _labels(_controlled(tiny, data_resident=data_resident, seed=9), 0) != first


@pytest.mark.parametrize("data_resident", [True, False])
def test_batches_draw_nothing_from_the_generator_that_dropout_uses(tiny, data_resident):
    workload = _controlled(tiny, data_resident=data_resident)
    before = torch.get_rng_state()
    list(workload.batches(0))
    workload.evaluate()
    assert torch.equal(torch.get_rng_state(), before)


def test_seed_decides_the_weights(tiny):
    weights = [_controlled(tiny, seed=seed).model.dense2.weight for seed in (1, 1, 2)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("data_resident", [True, False])
def test_evaluation_is_the_mean_over_all_test_images(tiny, data_resident, monkeypatch):
    monkeypatch.setattr(network_torch, "TEST_BATCH_SIZE", 8)  # 20 images: batches of 8, 8 and 4
    workload = _controlled(tiny, data_resident=data_resident)
    pixels = torch.from_numpy((tiny.test_images / 255 - 0.1307) / 0.3081).float().unsqueeze(1)
    with torch.no_grad():
        outputs = workload.model.eval()(pixels)
    workload.model.train()
    evaluation = workload.evaluate()
    by_hand = [-outputs[i, label].item() for i, label in enumerate(tiny.test_labels)]
    right = sum(outputs[i].argmax().item() == label for i, label in enumerate(tiny.test_labels))
    assert evaluation.samples == 20
    assert float(evaluation.loss) == pytest.approx(sum(by_hand) / 20, rel=1e-5)
    assert float(evaluation.accuracy) == pytest.approx(right / 20)
    assert evaluation.metric == "top1"
    assert workload.model.training


def test_evaluation_changes_nothing(tiny):
    workload = _controlled(tiny, data_resident=True)
    before = workload.snapshot()
    workload.evaluate()
    after = workload.snapshot()
    assert all(torch.equal(before["model"][name], after["model"][name]) for name in before["model"])
    assert all(parameter.grad is None for parameter in workload.model.parameters())


def test_snapshot_is_a_copy_that_training_does_not_reach(tiny):
    workload = _controlled(tiny, data_resident=True)
    batches = list(workload.batches(0))
    fresh = workload.snapshot()
    first = [workload.step(batch).item() for batch in batches]
    workload.end_epoch()
    for _ in range(2):  # a snapshot serves more than once
        workload.restore(fresh)
        assert workload.epoch == 0
        assert workload.optimizer.param_groups[0]["lr"] == 1.0
        assert workload.scheduler.last_epoch == 0
        assert [workload.step(batch).item() for batch in batches] == first


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch's own
def test_a_compiled_step_goes_back_to_fresh_weights_without_being_compiled_again(tiny, monkeypatch):
    from torch._dynamo.utils import counters

    # What is traced, and how often, is what counts: no C++ compiler is needed for that.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    workload = mnist.build(tiny, CPU, "tuned", data_resident=True, batch_size=16, settings=Settings(fused=True))
    batches, fresh = list(workload.batches(0)), workload.snapshot()
    first = [workload.step(batch).item() for batch in batches]
    assert workload.steps_taken() == len(batches)
    workload.end_epoch()
    compiled = counters["frames"]["ok"]
    assert compiled
    workload.restore(fresh)
    assert workload.optimizer.param_groups[0]["lr"] == 1.0
    assert [workload.step(batch).item() for batch in batches] == first
    assert counters["frames"]["ok"] == compiled


def test_description_comes_from_the_data_set_itself(tiny):
    description = _controlled(tiny, num_workers=0, data_resident=True, batch_size=8).description()
    assert description == {
        "parameters": 1_199_882,
        "batch_size": 8,
        "model": "mnist_cnn",
        "dataset": "random",
        "dataset_samples": 50,
        "image_size": 28,
        "num_workers": 0,
        "precision": "fp32",
        "compiled": False,
        # Forward 2 x 11,992,448 multiply-adds; backward twice that, but for the images, whose gradient nobody needs.
        "flops_per_sample": 3 * 2 * 11_992_448 - 2 * 26 * 26 * 32 * 9,
    }


def test_images_with_transforms_can_be_sent_to_a_spawned_worker(tiny):
    images = network_torch.TransformedImages(tiny.train_images, tiny.train_labels)
    again = pickle.loads(pickle.dumps(images))
    assert len(again) == len(images) == 50
    assert torch.equal(again[3][0], images[3][0])
    assert again[3][1] == images[3][1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "fast"}, "variant 'fast'; allowed: reference, controlled, tuned"),
        ({"variant": "reference", "data_resident": True}, "data_resident True; allowed: False with variant reference"),
        ({"variant": "controlled", "num_workers": -1}, "num_workers -1; allowed: 0 or more"),
        ({"variant": "controlled", "batch_size": 0}, "batch_size 0; allowed: 1 or more"),
    ],
)
def test_bad_option_is_an_error_that_names_it_and_what_is_allowed(tiny, options, message):
    with pytest.raises(ValueError, match=message):
        mnist.build(tiny, CPU, **options)
