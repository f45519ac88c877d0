"""Measure a training by Hugging Face's Trainer: pass `Speed()` to its callbacks.

benchbook measure train.py --processes 4 -- --num_train_epochs 1
"""

from transformers import TrainerCallback

import benchbook


class Speed(TrainerCallback):
    """Ends the training when its rate is known, and prints it. A step is one update of the weights."""

    def on_train_begin(self, args, state, control, **rest) -> None:
        self.meter = benchbook.Meter(args.train_batch_size * args.gradient_accumulation_steps)

    def on_step_end(self, args, state, control, **rest) -> None:
        control.should_training_stop = self.meter.tick()

    def on_train_end(self, args, state, control, **rest) -> None:
        print(self.meter.rate())
