"""Names of data sets for people."""

DATASETS = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "imagenet": "ImageNet",
    "synthetic": "random pixels",
}
DATASETS |= {
    "tinyshakespeare": "Tiny Shakespeare",
    "tinyshakespeare-excerpt": "an excerpt of Tiny Shakespeare",
}
# Data sets whose names end with an image size.
DRAWN = {
    "shapes": "drawn shapes",
    "triangles": "drawn triangles",
    "digits": "8 x 8 scans of digits",
}


def dataset(name: str) -> str:
    """Return a data set's title, such as MNIST, CIFAR-10 or drawn shapes."""
    return DATASETS.get(name) or DRAWN.get(name.partition("-")[0], name)
