"""Layers of `tuned` against torch's own."""

import pytest
import torch
from torch import nn

from benchbook.frameworks.torch.training import memory_format
from benchbook.frameworks.workload import Settings
from benchbook.studies.mnist_speedup import network_torch as mnist
from benchbook.studies.mnist_speedup.network_torch import ByteDropout, FormatKeepingMaxPool2d

pytestmark = pytest.mark.usefixtures("own_random_state")


@pytest.mark.parametrize("p", [0.25, 0.5, 1 / 256])
def test_a_share_is_dropped_and_the_rest_scaled(p):
    dropped = ByteDropout(p)(torch.ones(1000, 1001))
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])
    # Five standard deviations of a million draws.
    assert (dropped == 0).float().mean().item() == pytest.approx(p, abs=5 * (p * (1 - p) / 1e6) ** 0.5)
    rows, columns = (dropped == 0).float().mean(1), (dropped == 0).float().mean(0)
    expected = (p * (1 - p) / 1000) ** 0.5
    assert [rows.std().item(), columns.std().item()] == pytest.approx([expected, expected], rel=0.15)


def test_every_draw_is_another_and_a_seed_repeats_it():
    layer, values = ByteDropout(0.5), torch.ones(3, 7, 5)  # 105 values: not a whole number of eights
    torch.manual_seed(1)
    first, second = layer(values), layer(values)
    torch.manual_seed(1)
    assert torch.equal(layer(values), first)
    assert not torch.equal(first, second)


def test_the_gradient_passes_where_values_did():
    values = torch.randn(64, 64, requires_grad=True)
    kept = ByteDropout(0.5)(values)
    kept.sum().backward()
    torch.testing.assert_close(values.grad, (kept != 0).float() * 2)


def test_nothing_is_dropped_in_evaluation_or_without_a_share():
    values = torch.randn(8, 8)
    assert ByteDropout(0.5).eval()(values) is values
    assert ByteDropout(0.0)(values) is values


@pytest.mark.parametrize("p", [0.2, -0.25, 1.0])
def test_a_share_that_bytes_cannot_give_is_an_error(p):
    with pytest.raises(ValueError, match=rf"p {p}; allowed: 0 to less than 1, in steps of 1/256"):
        ByteDropout(p)


@pytest.mark.parametrize("settings", [Settings(), Settings(channels_last=True)])
def test_the_lean_mnist_network_is_the_same_function(settings):
    networks = [mnist.Network(), mnist.LeanNetwork()]
    networks[1].load_state_dict(networks[0].state_dict())
    images, labels = torch.randn(16, 1, 28, 28), torch.arange(16) % 10
    for network in networks:
        network.dropout1.p = network.dropout2.p = 0.0
        network.to(memory_format=memory_format(images, settings))
        nn.functional.nll_loss(network(images), labels).backward()
    for one, other in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_the_gradient_of_pooling_keeps_the_memory_format():
    images, seen = torch.randn(4, 8, 6, 6).contiguous(memory_format=torch.channels_last).requires_grad_(), []
    pooled = FormatKeepingMaxPool2d(2)(images)
    pooled.register_hook(seen.append)
    pooled.flatten(1).square().sum().backward()
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    plain = images.detach().requires_grad_()
    nn.MaxPool2d(2)(plain).flatten(1).square().sum().backward()
    assert torch.equal(images.grad, plain.grad)
