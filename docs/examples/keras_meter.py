"""Measure a Keras training: pass `Speed(batch_size)` to the callbacks of `model.fit`.

benchbook measure train.py --processes 4 -- --epochs 1
"""

import keras

import benchbook


class Speed(keras.callbacks.Callback):
    """Ends the training when its rate is known, and prints it."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size

    def on_train_begin(self, logs=None) -> None:
        self.meter = benchbook.Meter(self.batch_size, framework=keras.backend.backend())

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.model.stop_training = self.meter.tick()

    def on_train_end(self, logs=None) -> None:
        print(self.meter.rate())
