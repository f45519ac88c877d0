"""Measure a Lightning training: pass `Speed()` to the Trainer's callbacks.

benchbook measure train.py --processes 4 -- --max_epochs 1
"""

from lightning.pytorch import Callback

import benchbook


class Speed(Callback):
    """Ends the training when its rate is known, and prints it."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size

    def on_train_start(self, trainer, module) -> None:
        self.meter = benchbook.Meter(self.batch_size)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        trainer.should_stop = self.meter.tick(batch=batch)

    def on_train_end(self, trainer, module) -> None:
        print(self.meter.rate())
