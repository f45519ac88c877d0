"""Count the activation bytes of networks, and fit the memory of training to measured peaks.

`python benchmarks/fit_memory.py` prints `activation_bytes` of networks.csv for each network that it can build: the
bytes that autograd keeps for one sample in float32, counted on tensors without data.

`python benchmarks/fit_memory.py peaks` trains the networks FITTED and CHECKED with Adam on the CPU and prints the most
bytes that torch's allocator held. It fits the constants of `rows.networks` to FITTED and prints their error for each
network. It takes minutes.
"""

import gc
import sys
from collections.abc import Callable

import numpy
import torch
import torchvision
from torch._subclasses import FakeTensorMode
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from benchbook.rows import networks

FITTED = ("resnet18", "resnet50", "densenet121", "vgg11", "vit_b_32", "nanogpt_char")
CHECKED = ("mobilenet_v2", "convnext_tiny", "gpt2_124m")
BATCH, USUAL_BATCH = {"gpt2_124m": 1}, 4
CLASSES = 1000
PRECISIONS = ("fp32", "amp_bf16")


def build(name: str) -> tuple[torch.nn.Module, Callable[[int], tuple]]:
    """Return a network with random weights, and a function from a batch size to inputs and targets.

    Raises:
        ValueError: neither torchvision nor a study has it.
    """
    network = networks.describe(name)
    if network.sequence_length is not None:
        from benchbook.studies.gpt_tokens import network_torch, plan

        if name not in plan.SHAPES:
            raise ValueError(f"network {name!r}; allowed: {', '.join(plan.SHAPES)}, or one of torchvision")
        shape, length = plan.SHAPES[name], int(network.sequence_length)
        vocabulary = shape.vocabulary or 65
        model = network_torch.Network(shape, vocabulary, fused_attention=True)
        return model, lambda count: tuple(torch.randint(vocabulary, (2, count, length)))
    if name == "simclr_resnet18":
        from benchbook.studies.simclr_epochs.network_torch import Network

        views, model = Network(joint_views=True), torch.nn.Module()
        model.network, model.forward = views, lambda images: torch.cat(views(images, images))
    else:
        options = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
        model = torchvision.models.get_model(name, num_classes=CLASSES, **options)
    size, targets = int(network.image_size), 2 if name == "simclr_resnet18" else 1
    return model, lambda count: (torch.rand(count, 3, size, size), torch.randint(100, (targets * count,)))


def kept_bytes(name: str, count: int) -> int:
    """Return the bytes that autograd keeps for a batch, each storage once; this may include parameters."""
    model, make = build(name)
    kept = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage()  # referenced, so that no address is reused
        return tensor

    with FakeTensorMode(allow_non_fake_inputs=True), torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        inputs, targets = make(count)
        outputs = model(inputs)
        functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())
    return sum(storage.nbytes() for storage in kept.values())


def activation_bytes(name: str) -> int:
    """Return the bytes that one more sample adds."""
    return kept_bytes(name, 3) - kept_bytes(name, 2)


def peak_bytes(name: str, precision: str) -> int:
    """Return the most bytes that torch held on the CPU in a step, the optimizer's state included."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        torch.manual_seed(0)
        model, make = build(name)
        optimizer = torch.optim.Adam(model.parameters())
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
        inputs, targets = make(BATCH.get(name, USUAL_BATCH))
        with torch.autocast("cpu", torch.bfloat16, enabled=precision != "fp32"):
            outputs = model(inputs)
            loss = functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
    events = profiled.profiler.kineto_results.events()
    return int(numpy.cumsum([event.nbytes() for event in events if event.name() == "[memory]"]).max())


def main(words: list[str]) -> None:
    """Print the counts, or the peaks and the fit."""
    if not words:
        for name in networks.table().index:
            try:
                print(f"{name},{activation_bytes(name)}", flush=True)
            except ValueError as error:
                print(f"{name}: not counted: {error}", flush=True)
        return
    for precision in PRECISIONS:
        shares = []
        for name in (*FITTED, *CHECKED):
            network, count = networks.describe(name), BATCH.get(name, USUAL_BATCH)
            peak, predicted = peak_bytes(name, precision), network.memory_bytes(count, precision)
            share = (peak - network.memory_bytes(0, precision)) / (count * network.activation_bytes)
            shares += [share] if name in FITTED else []
            kind = "fitted" if name in FITTED else "checked"
            print(f"{precision}, {name}, batch {count}: {peak / 1e6:,.0f} MB: {share:.3f} times the count; ", end="")
            print(f"predicted {predicted / peak - 1:+.1%} ({kind})", flush=True)
        print(
            f"{precision}: activations take {numpy.median(shares):.3f} times the count (median of FITTED)", flush=True
        )


if __name__ == "__main__":
    main(sys.argv[1:])
