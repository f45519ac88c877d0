"""Measure networks of libraries as `benchbook measure` does, next to a stop-watch in the same loop.

    python benchmarks/own_networks.py [NAME ...]

Prints a line for each network: the printed rate over that of the stop-watch, samples a second, and
seconds in all (a process needs about 5 more to start). Networks of timm need timm.
"""

import sys
import time
from unittest import mock

from benchbook.frameworks.torch import own_network
from benchbook.loop import meter, networks

VISION, SMALL = "torchvision.models:", {"image_size": 64, "batch_size": 4}
NAMES = """shufflenet_v2_x0_5 mnasnet1_0 mobilenet_v3_small mobilenet_v2 squeezenet1_1 regnet_y_400mf
    efficientnet_b0 resnet18 resnet50 densenet121 convnext_tiny vgg11_bn"""
NETWORKS = {VISION + name: {"arguments": "num_classes=10"} for name in NAMES.split()}
NETWORKS |= {
    f"timm:create_model {name}": {"arguments": f"model_name='{name}', num_classes=10"} | size
    for name, size in {
        "resnet26": {},
        "vit_tiny_patch16_224": {"image_size": 224},
        "mobilenetv4_conv_small": {},
    }.items()
}


def measured(network: str, chosen: dict) -> str:
    """Return the line of one network."""
    build, ends, begun = own_network.build, [], time.perf_counter()

    def watched(*given, **named):
        step, batches = build(*given, **named)

        def timed(batch):
            loss = step(batch)
            loss.item()  # the device has finished
            ends.append(time.perf_counter())
            return loss

        return timed, batches

    choices = networks.Choices(network.partition(" ")[0], **SMALL | chosen)
    with mock.patch.object(own_network, "build", watched):
        [rate], _, _ = networks.run(choices)
    first = meter.meters[-1]._first
    seconds = ends[first + rate.steps - 1] - ends[first - 1]
    ratio = rate.samples_per_second * seconds / (rate.steps * choices.batch_size)
    whole = time.perf_counter() - begun
    return f"{ratio:.3f} | {rate.samples_per_second:8.1f} | {whole:5.1f} | {network}"


def main() -> None:
    """Print the table."""
    for network, chosen in NETWORKS.items():
        if not sys.argv[1:] or any(word in network for word in sys.argv[1:]):
            print(measured(network, chosen), flush=True)


if __name__ == "__main__":
    main()
