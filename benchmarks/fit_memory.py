"""Count the activation bytes of networks, and fit the memory of training to measured peaks.

`python benchmarks/fit_memory.py` writes `activation_bytes` of networks.csv for each network that
it can build, and prints what changes: the bytes that autograd keeps for one sample in float32,
counted on tensors without data.

`python benchmarks/fit_memory.py peaks` trains the networks FITTED and CHECKED with Adam on
tensors without data and prints the most bytes that torch's memory tracker saw. It fits the
constants of `rows.networks` to FITTED and prints their error for each network. It takes minutes.
"""

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy
import pandas
import torch
import torchvision
from torch._subclasses import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional

from benchbook.machine import layout
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
            raise ValueError(
                f"network {name!r}; allowed: {', '.join(plan.SHAPES)}, or one of torchvision"
            )
        shape, length = plan.SHAPES[name], int(network.sequence_length)
        vocabulary = shape.vocabulary or 65
        settings = SimpleNamespace(fused_attention=True, padded=False)
        chosen = SimpleNamespace(
            shape=shape, vocabulary=vocabulary, settings=settings, lora_rank=0, seed=0
        )
        model = network_torch.Network(chosen)
        return model, lambda count: tuple(torch.randint(vocabulary, (2, count, length)))
    if name == "simclr_resnet18":
        from benchbook.studies.simclr_epochs.network_torch import Network

        views, model = Network(), torch.nn.Module()
        model.network, model.forward = views, lambda images: torch.cat(views(images, images))
    elif name == "unet_triangles":
        os.environ["KERAS_BACKEND"] = "torch"  # before the first import of Keras
        from benchbook.studies.segmentation_scaling.network_keras import make_model

        model, size = make_model(int(network.image_size)), int(network.image_size)
        return model, lambda count: (
            torch.rand(count, size, size, 1),
            torch.zeros((count, size, size), dtype=int),
        )
    else:
        options = (
            {"aux_logits": False, "init_weights": False}
            if name in ("googlenet", "inception_v3")
            else {}
        )
        model = torchvision.models.get_model(name, num_classes=CLASSES, **options)
    size, targets = int(network.image_size), 2 if name == "simclr_resnet18" else 1
    return model, lambda count: (
        torch.rand(count, 3, size, size),
        torch.randint(100, (targets * count,)),
    )


def kept_bytes(name: str, count: int) -> int:
    """Return the bytes that autograd keeps for a batch, each storage once; this may include
    parameters."""
    model, make = build(name)
    kept = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = (
            tensor.untyped_storage()
        )  # referenced, so that no address is reused
        return tensor

    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept),
    ):
        inputs, targets = make(count)
        outputs = model(inputs)
        functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())
    return sum(storage.nbytes() for storage in kept.values())


def activation_bytes(name: str) -> int:
    """Return the bytes that one more sample adds."""
    return kept_bytes(name, 3) - kept_bytes(name, 2)


def peak_bytes(name: str, precision: str) -> int:
    """Return the most bytes that torch holds in a step with Adam, the optimizer's state included.

    Counted on tensors without data. On the CPU, torch's allocator held at most 2.4 % more for
    ResNet-18, ResNet-50 and VGG-11 at batch size 4.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        model, make = build(name)
        inputs, targets = make(BATCH.get(name, USUAL_BATCH))
        optimizer = torch.optim.Adam(model.parameters())
        tracker = MemTracker()
        tracker.track_external(model, optimizer, inputs, targets)
        with tracker:
            for _ in range(2):  # the first step makes the optimizer's state
                with torch.autocast("cpu", torch.bfloat16, enabled=precision != "fp32"):
                    outputs = model(inputs)
                    loss = functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                tracker.reset_mod_stats()  # else a module's second call is an error
    return max(
        sum_of for own in tracker.get_tracker_snapshot("peak").values() for sum_of in own.values()
    )


def write_counts() -> None:
    """Write the counts into networks.csv, and print those that changed and the networks that
    were not counted."""
    path = layout.published() / "record" / "networks.csv"
    table = pandas.read_csv(path, dtype=str, keep_default_na=False)
    for place, line in table.iterrows():
        try:
            counted = str(activation_bytes(line["network"]))
        except ValueError as error:
            print(f"{line['network']}: not counted: {error}", flush=True)
            continue
        if counted != line["activation_bytes"]:
            print(f"{line['network']}: {line['activation_bytes']} is now {counted}", flush=True)
            table.loc[place, "activation_bytes"] = counted
    table.to_csv(path, index=False)


def main(words: list[str]) -> None:
    """Write the counts, or print the peaks and the fit."""
    if not words:
        write_counts()
    for precision in PRECISIONS if words else ():
        shares = []
        for name in (*FITTED, *CHECKED):
            network, count = networks.describe(name), BATCH.get(name, USUAL_BATCH)
            peak, predicted = peak_bytes(name, precision), network.memory_bytes(count, precision)
            share = (peak - network.memory_bytes(0, precision)) / (count * network.activation_bytes)
            shares += [share] if name in FITTED else []
            kind = "fitted" if name in FITTED else "checked"
            print(
                f"{precision}, {name}, batch {count}: {peak / 1e6:,.0f} MB: {share:.3f} times the count; ",
                end="",
            )
            print(f"predicted {predicted / peak - 1:+.1%} ({kind})", flush=True)
        print(
            f"{precision}: activations take {numpy.median(shares):.3f} times the count (median of FITTED)",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
