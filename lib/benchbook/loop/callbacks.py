"""Callbacks that measure training by another library, and end it when its rate is known; options
are those of `Meter`.

Validation is left out. What the library does between two steps, such as saving a checkpoint,
counts.
"""

import math
import operator
from contextlib import ExitStack
from typing import Any

from benchbook.frameworks import batches
from benchbook.loop import meter


class _Speed:
    """What the callbacks share: a meter that starts with the training, and a pause while the
    library validates."""

    def __init__(self, options: dict) -> None:
        super().__init__()
        self._options, self._pause = options, ExitStack()

    def _begin(self) -> None:
        self._meter, self._count = meter.Meter(lambda count: count, **self._options), 0.0

    def _tick(self, last: Any, steps: int = 1) -> bool:
        count, self._count = self._count, 0.0
        return self._meter.tick(last, count, steps)

    def _hold(self, *_: Any) -> None:
        self._pause.close()
        self._pause.enter_context(self._meter.paused())

    def _go_on(self, *_: Any, **__: Any) -> None:
        self._pause.close()

    def _report(self, *_: Any, **__: Any) -> None:
        try:
            self._meter.report()
        except ValueError as error:  # the trained network must not be lost
            print(error, flush=True)


def keras(batch_size: int, num_samples: int | None, **options: Any) -> Any:
    """Return a callback for Keras's `fit`.

    Args:
        batch_size, num_samples: of each step, and of an epoch, whose last batch may be short;
        None: no batch is short.
        options: of `Meter`.

    Raises:
        ValueError: when training begins: an epoch has another number of steps.
    """
    from keras.callbacks import Callback

    class Speed(_Speed, Callback):
        def on_train_begin(self, logs=None) -> None:
            steps, expected = self.params["steps"], math.ceil((num_samples or 0) / batch_size)
            if num_samples and steps not in (None, expected):
                raise ValueError(
                    f"num_samples {num_samples} are {expected} steps an epoch; fit takes {steps}"
                )
            self._begin()

        def on_train_batch_begin(self, batch, logs=None) -> None:
            self._before = batch

        def on_train_batch_end(
            self, batch, logs=None
        ) -> None:  # the last of those in one execution, or later
            end = min(batch + 1, self.params["steps"] or batch + 1)
            self._count = min(end * batch_size, num_samples or math.inf) - self._before * batch_size
            if self._tick([each.value for each in self.model.weights[:1]], end - self._before):
                self.model.stop_training = True

        on_test_begin, on_test_end, on_train_end = _Speed._hold, _Speed._go_on, _Speed._report

    return Speed(options)


def lightning(samples: meter.Samples, **options: Any) -> Any:
    """Return a callback for Lightning's Trainer; a step is an update of the weights.

    Args:
        samples: of each batch, or a function that returns it for a batch.
        options: of `Meter`.
    """
    from lightning.pytorch import Callback

    class Speed(_Speed, Callback):
        def on_train_start(self, trainer, module) -> None:
            batches.refuse_short(trainer.train_dataloader, samples)
            self._begin()

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
            self._count += samples(batch) if callable(samples) else samples
            updates = (
                batch_idx + 1
            ) % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch
            if updates and self._tick(next(module.parameters(), None)):
                trainer.should_stop = True

        def on_validation_start(self, trainer, module) -> None:
            if not trainer.sanity_checking:
                self._hold()

        on_validation_end, on_train_end = _Speed._go_on, _Speed._report

    return Speed(options)


def trainer(**options: Any) -> Any:
    """Return a callback for Hugging Face's Trainer, which knows its samples; a step is an update
    of the weights.

    Args:
        options: of `Meter`.
    """
    from transformers import TrainerCallback

    class Speed(_Speed, TrainerCallback):
        def on_train_begin(self, args, state, control, **rest) -> None:
            self._begin()

        def on_epoch_begin(self, args, state, control, **rest) -> None:
            self._left = operator.length_hint(rest["train_dataloader"].dataset) or math.inf

        def on_substep_end(self, args, state, control, **rest) -> None:
            self._count += min(args.train_batch_size, self._left)
            self._left -= (
                args.train_batch_size if args.world_size == 1 else 0
            )  # several fill up the last batch

        def on_step_end(self, args, state, control, **rest) -> None:
            self.on_substep_end(args, state, control)
            if self._tick(next(rest["model"].parameters(), None)):
                control.should_training_stop = True
            self.on_epoch_end(args, state, control)

        def on_epoch_end(self, args, state, control, **rest) -> None:
            if control.should_evaluate or control.should_training_stop:
                self._hold()

        on_evaluate, on_train_end = _Speed._go_on, _Speed._report

    return Speed(options)
