import pickle

import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import RandomSampler, SequentialSampler

import small
from benchbook.frameworks.devices import Device
from benchbook.studies.mnist_speedup import network_torch
from benchbook.studies.mnist_speedup import plan as mnist
from fakes import CPU

pytestmark = pytest.mark.usefixtures("own_random_state")

MPS, CUDA = Device("mps", "an Apple GPU"), Device("cuda", "an NVIDIA GPU")


@pytest.fixture(scope="module")
def tiny():
    return small.images((28, 28), 70, 20)


@pytest.fixture
def without_moving(monkeypatch):
    """Let a workload be built for an accelerator that is not here."""
    monkeypatch.setattr(network_torch.Network, "to", lambda self, kind: self)
    monkeypatch.setattr(network_torch, "flops_per_sample", lambda model, inputs: 0.0)


def _controlled(tiny, device=CPU, **options):
    return mnist.build(tiny, device, "controlled", **{"num_workers": 0, "batch_size": 16} | options)


def test_network_computes_what_an_independent_one_computes_with_its_weights():
    network = network_torch.Network().eval()
    convolutions = nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)
    dense = nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(dim=1)
    independent = nn.Sequential(*convolutions, *dense).eval()
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


@pytest.mark.parametrize(
    ("device", "variant", "workers", "shuffled"),
    [
        *[(CPU, "reference", 0, False), (MPS, "reference", 1, True), (CUDA, "reference", 1, True)],
        *[(device, "controlled", 2, True) for device in (CPU, MPS, CUDA)],
    ],
)
def test_loaders_are_the_articles_or_the_same_on_every_device(tiny, without_moving, device, variant, workers, shuffled):
    workload = mnist.build(tiny, device, variant, num_workers=2)
    loader, test = workload.train_batches(0), workload.test_batches()
    pinned = device.kind == "cuda"  # MPS has no pinned memory
    assert (loader.num_workers, loader.pin_memory, loader.batch_size) == (workers, pinned, 64)
    assert (test.num_workers, test.pin_memory, test.batch_size) == (workers, pinned, 1000)
    sampler = RandomSampler if shuffled else SequentialSampler
    assert (type(loader.sampler), type(test.sampler)) == (sampler, sampler)
    again = mnist.build(tiny, CPU, "controlled").train_batches(0).sampler
    assert list(loader.sampler) == (list(again) if shuffled else list(range(50)))


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


def test_images_with_transforms_can_be_sent_to_a_spawned_worker(tiny):
    images = _controlled(tiny).train_batches(0).dataset
    again = pickle.loads(pickle.dumps(images))
    assert len(again) == len(images) == 50
    assert torch.equal(again[3][0], images[3][0])
    assert again[3][1] == images[3][1]


def test_loading_processes_stay_from_epoch_to_epoch_and_deliver_what_each_epoch_has(tiny):
    workload, others = _controlled(tiny, num_workers=1), set(psutil.Process().children())
    epochs, workers = workload.epochs(), []
    for epoch in range(3):
        batches = [[part.clone() for part in batch] for batch in next(epochs)]
        workers.append(set(psutil.Process().children()) - others)
        expected = list(workload.batches(epoch))
        assert len(batches) == len(expected) == 4
        assert all(
            torch.equal(*pair)
            for got, due in zip(batches, expected, strict=True)
            for pair in zip(got, due, strict=True)
        )
    assert len(workers[0]) == 1
    assert workers[0] == workers[1] == workers[2]
