"""MNIST's layers, its evaluation, and its loading processes."""

import psutil
import pytest
import torch

from benchbook.studies.mnist_speedup import plan as mnist
from benchbook.studies.mnist_speedup.network_torch import (
    ByteDropout,
    FormatKeepingMaxPool2d,
    LeanNetwork,
    Network,
)
from made import small
from made.fakes import CPU

pytestmark = pytest.mark.usefixtures("own_random_state")


@pytest.fixture(scope="module")
def tiny():
    return small.images((28, 28), 70, 20)


def _controlled(tiny, **options):
    return mnist.Plan.build(
        tiny, CPU, "controlled", **{"num_workers": 0, "batch_size": 16} | options
    )


@pytest.mark.parametrize(("name", "kept"), [("dropout1", 0.75), ("dropout2", 0.5)])
@pytest.mark.parametrize("make", [Network, LeanNetwork])
def test_a_network_drops_a_quarter_and_then_a_half_while_it_trains(make, name, kept):
    network, seen = make(), []
    getattr(network, name).register_forward_hook(
        lambda module, inputs, output: seen.append((inputs[0], output))
    )
    network(torch.randn(64, 1, 28, 28))
    ((before, after),) = seen
    share = (after[before > 0] > 0).float().mean().item()
    assert share == pytest.approx(kept, abs=0.05)


@pytest.mark.parametrize("p", [0.25, 0.5, 1 / 256])
def test_a_share_is_dropped_and_the_rest_and_its_gradient_are_scaled(p):
    values = torch.ones(1000, 1001, requires_grad=True)
    dropped = ByteDropout(p)(values)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])
    # Five standard deviations of a million draws.
    assert (dropped == 0).float().mean().item() == pytest.approx(
        p, abs=5 * (p * (1 - p) / 1e6) ** 0.5
    )
    spread = (p * (1 - p) / 1000) ** 0.5
    assert [(dropped == 0).float().mean(side).std().item() for side in (0, 1)] == pytest.approx(
        [spread] * 2, rel=0.15
    )
    dropped.sum().backward()
    torch.testing.assert_close(values.grad, dropped.detach())


def test_draws_differ_a_seed_repeats_them_and_evaluation_draws_none():
    layer, values = (
        ByteDropout(0.5),
        torch.ones(3, 7, 5),
    )  # 105 values: not a whole number of eights
    torch.manual_seed(1)
    first, second = layer(values), layer(values)
    torch.manual_seed(1)
    assert torch.equal(layer(values), first)
    assert not torch.equal(first, second)
    assert layer.eval()(values) is values


@pytest.mark.parametrize("p", [0.2, -0.25, 1.0])
def test_a_share_that_bytes_cannot_give_is_an_error(p):
    with pytest.raises(ValueError, match=rf"p {p}; allowed: 0 to less than 1, in steps of 1/256"):
        ByteDropout(p)


def test_the_gradient_of_pooling_keeps_the_memory_format():
    images, seen = (
        torch.randn(4, 8, 6, 6).contiguous(memory_format=torch.channels_last).requires_grad_(),
        [],
    )
    pooled = FormatKeepingMaxPool2d(2)(images)
    pooled.register_hook(seen.append)
    pooled.flatten(1).square().sum().backward()
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_loading_processes_stay_from_epoch_to_epoch_and_deliver_what_each_epoch_has(tiny):
    workload, others = _controlled(tiny, num_workers=1), set(psutil.Process().children())
    epochs, workers = workload.epochs(), []
    for epoch in range(3):
        batches = [[part.clone() for part in batch] for batch in next(epochs)]
        workers.append(set(psutil.Process().children()) - others)
        assert len(batches) == 4
        for got, due in zip(batches, workload.batches(epoch), strict=True):
            assert all(map(torch.equal, got, due))
    assert len(workers[0]) == 1
    assert workers[0] == workers[1] == workers[2]
