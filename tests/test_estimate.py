"""The epochs to an accuracy."""

import pandas

from benchbook.record import estimate


def test_an_accuracy_is_read_off_the_raw_curve_and_never_continued():
    accuracies = [0.1, 0.5, 0.4, 0.6]
    rows = pandas.DataFrame({"phase": "evaluate", "epoch": range(1, 5), "accuracy": accuracies})
    rows = pandas.concat([rows, pandas.DataFrame({"phase": ["train"], "epoch": [1], "accuracy": [0.9]})])
    assert estimate.epochs_to_accuracy(rows, 0.45) == 2
    assert estimate.epochs_to_accuracy(rows, 0.6) == 4
    assert estimate.epochs_to_accuracy(rows, 0.61) is None
