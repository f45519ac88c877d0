"""Measure networks of libraries and of benchmarks/networks.py as `benchbook measure` does, next
to a plain loop.

    python benchmarks/own_networks.py [NAME ...]

Prints a line for each network: the verdict, the rate over that of a plain loop (their windows
alternate), seconds to the end of the first step, seconds in all (a process needs about 5 more to
start), and the reason if the verdict is not "passed".
"""

import itertools
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

from benchbook.frameworks import devices
from benchbook.frameworks.workload import Settings
from benchbook.measuring import parity, protocol, runs
from benchbook.measuring.sensors import NO_SENSOR
from benchbook.measuring.window import train_window
from benchbook.measuring.writer import Run
from benchbook.studies.your_network import network_torch
from benchbook.studies.your_network.plan import Plan

SECONDS, ROUNDS = 0.3, 3
HERE = f"{Path(__file__).parent}/networks.py:"
VISION = "torchvision.models:"
SMALL = {"image_size": 64, "batch_size": 4, "arguments": "num_classes=10"}
BOXES = {"loader": f"{HERE}boxes", "batch_size": 2}
BOXES |= {"arguments": "weights=None, weights_backbone=None, num_classes=4"}
ALEXNET = {"image_size": 96}
AUXILIARY = {"arguments": "num_classes=10, init_weights=False"}
CLASSIFIERS = """shufflenet_v2_x0_5 shufflenet_v2_x1_0 mnasnet0_5 mnasnet1_0 mobilenet_v3_small mobilenet_v3_large
    mobilenet_v2 squeezenet1_1 regnet_y_400mf regnet_x_400mf efficientnet_b0 resnet18 resnet50 densenet121 swin_t
    convnext_tiny vgg11_bn efficientnet_v2_s resnext50_32x4d wide_resnet50_2"""
OWN = {"image_size": 16, "batch_size": 8, "arguments": "num_classes=10"}
TEXT = {"batch_size": 8, "loader": f"{HERE}text"}
NETWORKS = {
    HERE + name: OWN
    for name in (
        "lora",
        "spectral",
        "random_features",
        "half",
        "function",
        "lazy",
        "library",
        "noisy",
        "casting",
        "heads",
    )
}
NETWORKS |= {
    f"{HERE}function {name}": OWN | {"arguments": f"num_classes=10, name='{name}'"}
    for name in ("rounded", "reversed")
}
NETWORKS |= {f"{HERE}gpt": TEXT, f"{HERE}gpt unfused": TEXT | {"arguments": "fused=False"}}
NETWORKS |= {f"{HERE}gpt amp_bf16": TEXT | {"precision": "amp_bf16"}}
NETWORKS |= {f"{HERE}sparse": {"batch_size": 8, "loader": f"{HERE}bag"}}
NETWORKS |= {f"{HERE}graph": {"batch_size": 8, "loader": f"{HERE}graph_batch"}}
NETWORKS |= {VISION + name: SMALL for name in CLASSIFIERS.split()}
NETWORKS |= {f"{VISION}alexnet": SMALL | ALEXNET, f"{VISION}googlenet": SMALL | AUXILIARY}
NETWORKS |= {f"{VISION}inception_v3": SMALL | AUXILIARY | {"image_size": 299, "batch_size": 2}}
NETWORKS |= {f"{VISION}vit_b_16": SMALL | {"arguments": "num_classes=10, image_size=64"}}
NETWORKS |= {
    f"torchvision.models.detection:{name}": BOXES
    for name in ("ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn")
}
NETWORKS |= {
    f"{VISION}resnet18 {precision}": SMALL | {"precision": precision}
    for precision in ("amp_bf16", "bf16")
}


def plain_torch(plan: Plan, made: network_torch.Batches):
    """Return a plain training loop, as a function of the number of steps."""
    torch.manual_seed(1)
    network, precision = network_torch._network(plan).train(), plan.settings.precision
    network = network.to(torch.bfloat16) if precision == "bf16" else network
    kept = next(network.parameters()).dtype
    batches = [
        [
            part.to(kept) if part.is_floating_point() and kept == torch.bfloat16 else part
            for part in batch
        ]
        for batch in made.of(plan.batch_size)
    ]
    inputs, _ = made.nested(batches[0])
    network(**inputs) if isinstance(inputs, dict) else network(*inputs)  # lazy layers
    optimizer = torch.optim.SGD(
        [part for part in network.parameters() if part.requires_grad], 0.01, momentum=0.9
    )

    def train(steps: int) -> None:
        for step in range(steps):
            inputs, target = made.nested(batches[step % len(batches)])
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "amp_bf16"):
                outputs = network(**inputs) if isinstance(inputs, dict) else network(*inputs)
                loss = network_torch.default_loss(outputs, target)
            loss.backward()
            optimizer.step()

    return train


def measured(network: str, chosen: dict, device: devices.Device) -> str:
    """Return the line of one network."""
    chosen, begun = {"network": network} | chosen, time.perf_counter()
    plan = Plan(None, device, settings=Settings(chosen.pop("precision", "fp32")), **chosen)
    identity = runs.identity(
        "your_network", "a-point", "a-run", "a-machine", {"variant": "reference", "device": "cpu"}
    )
    with tempfile.TemporaryDirectory() as folder:
        record = Run(Path(folder), "a-run", identity)
        workload = network_torch.build(plan)
        protocol.first_step(workload, record)
        first = time.perf_counter() - begun
        verdict = parity.check(workload, record, 1)
        protocol.warm_up(workload, record, 2, has_begun=True)
        amount = protocol.Amount(1, 3, window_seconds=SECONDS, evaluates=False)
        protocol.measure_windows(workload, record, amount)
        rows = record.rows()
        steps = int(rows["samples"].iloc[-1]) // plan.batch_size
    whole = time.perf_counter() - begun
    train = plain_torch(plan, workload.made)
    train(2)
    ratios = []
    for _ in range(ROUNDS):
        epochs = itertools.chain.from_iterable(
            workload.batches(epoch) for epoch in itertools.count()
        )
        loader = [*itertools.islice(epochs, steps)]
        own = train_window(workload, NO_SENSOR, loader)["seconds"]
        begun = time.perf_counter()
        train(steps)
        ratios.append((time.perf_counter() - begun) / own)
    name = "passed" if verdict.passed else ("unproven" if not verdict.num_steps else "wrong")
    reason = "" if verdict.passed else verdict.reason[:110]
    return f"{name:8} | {statistics.median(ratios):.2f} | {first:5.1f} | {whole:5.1f} | {reason}"


def main() -> None:
    """Print the table."""
    wanted, device = sys.argv[1:], devices.pick("cpu")
    for title, chosen in NETWORKS.items():
        if wanted and not any(word in title for word in wanted):
            continue
        try:
            line = measured(title.split()[0], dict(chosen), device)
        except Exception as error:  # the next network may succeed
            traceback.print_exc()
            line = f"{type(error).__name__}: {str(error)[:150]}"
        print(f"{title.replace(HERE, 'networks:').replace(VISION, '')} | {line}", flush=True)


if __name__ == "__main__":
    main()
