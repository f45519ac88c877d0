"""The tasks that a reader chooses from, and how many images each takes."""

from dataclasses import dataclass

MINUTE = 60.0
IMAGENET = 1_281_167


@dataclass(frozen=True)
class Task:
    """One thing to train.

    Attributes:
        key: in addresses and tables.
        short: on its button.
        does: what a machine does, as a sentence goes on after "takes ... to".
        note: what is counted, for a reader.
        images: to train on, all epochs together.
        study: whose rows answer it; empty for none.
        epoch: images of what the study's article calls an epoch.
        image_size: pixels of a side; rows of other sizes do other work.
        work: what the record is asked to predict; empty where nothing is predicted.
    """

    key: str
    short: str
    does: str
    note: str
    images: float
    study: str = ""
    epoch: float | None = None
    image_size: float | None = None
    work: str = ""


TASKS = (
    Task(
        "mnist",
        "MNIST, one epoch",
        "train one epoch of MNIST",
        "60,000 images of handwritten digits through a small convolutional network, with the set-up and the test that"
        " the article's time includes.",
        60_000,
        study="mnist_speedup",
        epoch=60_000,
        work="mnist_speedup",
    ),
    Task(
        "simclr",
        "SimCLR, 200 epochs",
        "train SimCLR for 200 epochs",
        "A ResNet-18 that learns from 50,000 CIFAR-10 images without labels, two views of each; with the"
        " nearest-neighbour test that the article's time includes.",
        200 * 50_000,
        study="simclr_epochs",
        epoch=50_000,
        image_size=32,
        work="simclr_epochs",
    ),
    Task(
        "mobilenetv2",
        "MobileNetV2, a million images",
        "train MobileNetV2 on a million images",
        "The last layer of MobileNetV2 on images of 128 x 128 pixels. Published times hold the validation that their"
        " article counted.",
        1e6,
        study="mobilenetv2_energy",
        epoch=50_000,
        image_size=128,
        work="mobilenetv2_energy",
    ),
    Task(
        "segmentation",
        "Segmentation, 100,000 images",
        "train the article's segmentation set",
        "A U-Net on 100,000 grey images of 512 x 512 pixels: the article's set; its own network was not released.",
        100_000,
        study="segmentation_scaling",
        image_size=512,
        work="segmentation_scaling",
    ),
    Task(
        "resnet50",
        "ResNet-50, 90 epochs",
        "train ResNet-50 for 90 epochs",
        "90 epochs of ImageNet, 1,281,167 images each of 224 x 224 pixels, at the rate of training; tests left out."
        " Published rates are of synthetic images or of real ones, as each source says.",
        90 * IMAGENET,
        study="resnet50_cost",
        epoch=IMAGENET,
        image_size=224,
        work="resnet50_cost",
    ),
    Task(
        "resnet50-accuracy",
        "ResNet-50 to 75.9 %",
        "train ResNet-50 to 75.9 % accuracy",
        "Published times from the first step until 75.9 % of ImageNet's test images are named right; machines, batch"
        " sizes and recipes are each source's own. Predictions are of one device in 16 bits, at those times' pace.",
        1,
    ),
    Task(
        "own",
        "Your own network",
        "train your network",
        "Predicted from the public record for a convolutional network in PyTorch with 64 images a step: state the"
        " operations of a training step for one image (2 for a multiply-add, forward and backward together) and the"
        " images. What was measured stands with its own network's operations; choose these to see predictions of it.",
        1e6,
        work="given",
    ),
)


def task(key: str) -> Task:
    """Return a task by its key.

    Raises:
        ValueError: no task has it; the message lists those that exist.
    """
    by_key = {each.key: each for each in TASKS}
    if key not in by_key:
        raise ValueError(f"task {key!r}; allowed: {', '.join(by_key)}")
    return by_key[key]
