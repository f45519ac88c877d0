"""Options that several studies have, checked in one way."""


def check_options(
    variants: tuple[str, ...], variant: str, data_resident: bool, num_workers: int, batch_size: int
) -> None:
    """Refuse options of `build` that make no sense.

    Args:
        variants: those that the study has.

    Raises:
        ValueError: an unknown variant, resident data with `reference`, or a number out of range.
    """
    if variant not in variants:
        raise ValueError(f"variant {variant!r}; allowed: {', '.join(variants)}")
    if variant == "reference" and data_resident:
        raise ValueError("data_resident True; allowed with variant reference: False (the article had loaders)")
    if num_workers < 0:
        raise ValueError(f"num_workers {num_workers}; allowed: 0 or more")
    if batch_size < 1:
        raise ValueError(f"batch_size {batch_size}; allowed: 1 or more")


def check_fits(batch_size: int, num_images: int) -> None:
    """Refuse a batch that the training images do not fill.

    Raises:
        ValueError: the batch is larger than the data set.
    """
    if batch_size > num_images:
        raise ValueError(f"batch_size {batch_size}; allowed: up to {num_images}, the training images")
