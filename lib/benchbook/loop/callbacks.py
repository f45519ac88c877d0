"""Callbacks that measure training by another library, and end it when its rate is known; options
are those of `Meter`.

Validation is left out. What the library does between two steps, such as saving a checkpoint,
counts.
"""

from collections.abc import Callable
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
        self._meter: Any = None

    def _begin(self, samples: meter.Samples = lambda count: count, **more: Any) -> None:
        if self._meter:
            self._meter.give_up()
        self._meter, self._count = meter.Meter(samples, **self._options, **more), 0.0

    def _tick(self, last: Any) -> bool:
        count, self._count = self._count, 0.0
        return self._meter.tick(last, count)

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


class _Keras(_Speed):
    """What a callback of Keras does.

    Args:
        samples: see `keras`.
    """

    model: Any  # Keras sets it, and `params`
    params: dict
    _place, _base, _earlier = 0, 0.0, 0.0  # steps, and Keras's own count, since `_earlier`

    def __init__(self, samples: float | None, options: dict) -> None:
        super().__init__(options)
        self._samples = samples

    def on_train_begin(self, logs=None) -> None:
        self._begin(self._samples or 1, total=None if self._samples else self._counted)

    def _own(self) -> float:
        getattr(self.model, "jax_state_sync", bool)()
        return sum(float(each.count) for each in self.model.metrics if each.name == "loss")

    def _counted(self) -> float:
        if not self._place:
            return self._earlier
        if (count := self._own() - self._base) <= self._place:
            allowed = "samples, those of each step, such as keras(samples=64)"
            raise ValueError(f"Keras counts no samples here; allowed: {allowed}")
        return self._earlier + count

    def _keep(self) -> None:
        """Keep the count: an evaluation and an epoch each reset it."""
        if not self._samples:
            self._earlier = self._counted()
        self._place, self._base = 0, 0.0

    def on_epoch_end(self, epoch, logs=None) -> None:
        self._keep()

    def on_test_begin(self, logs=None) -> None:
        self._keep()
        self._hold()

    def on_test_end(self, logs=None) -> None:
        self._base = self._own()
        self._go_on()

    def on_epoch_begin(self, epoch, logs=None) -> None:
        self._base, self._batch = 0.0, 0

    def on_train_batch_end(
        self, batch, logs=None
    ) -> None:  # the last of those in one execution, or later
        end = min(batch + 1, self.params["steps"] or batch + 1)
        steps, self._batch = end - self._batch, end
        self._place += steps
        if self._meter.tick([each.value for each in self.model.weights[:1]], steps=steps):
            self.model.stop_training = True

    on_train_end = _Speed._report


def keras(samples: float | None = None, **options: Any) -> Any:
    """Return a callback for Keras's `fit`.

    Args:
        samples: of each step; None: as Keras counts them for the mean of its loss.
        options: of `Meter`.

    Raises:
        ValueError: at the first step: Keras counts steps in place of samples, as before 3.6, or
        nothing.
    """
    from keras.callbacks import Callback

    class Speed(_Keras, Callback):
        pass

    return Speed(samples, options)


def lightning(samples: meter.Samples, **options: Any) -> Any:
    """Return a callback for Lightning's Trainer; a step is an update of the weights.

    Args:
        samples: of each batch, or a function that returns it for a batch.
        options: of `Meter`.
    """
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class Speed(_Speed, Callback):
        def on_train_start(self, trainer, module) -> None:
            self._begin()

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
            if callable(samples):
                self._count += samples(batch)
            else:
                self._count += samples
                self._meter.look(batch, samples)
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


def trainer(samples: Callable[[dict], float] = batches.rows, **options: Any) -> Any:
    """Return a callback for Hugging Face's Trainer; a step is an update of the weights.

    Args:
        samples: of what the network gets in a training step, its keyword arguments by name.
        options: of `Meter`.
    """
    from transformers import TrainerCallback

    class Speed(_Speed, TrainerCallback):
        _hook = None

        def on_train_begin(self, args, state, control, **rest) -> None:
            if self._hook:
                self._hook.remove()
            self._begin()
            self._hook = _counting(rest["model"], self, samples)

        def on_step_end(self, args, state, control, **rest) -> None:
            if self._tick(next(rest["model"].parameters(), None)):
                control.should_training_stop = True
            self.on_epoch_end(args, state, control)

        def on_epoch_end(self, args, state, control, **rest) -> None:
            if control.should_evaluate or control.should_training_stop:
                self._hold()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self._hook.remove()
            self._report()

        on_evaluate = _Speed._go_on

    return Speed(options)


def _counting(network: Any, speed: _Speed, samples: Callable[[dict], float]) -> Any:
    """Let a network of torch count the samples of each training step; return the hook."""
    import torch

    @torch.compiler.disable
    def count(network, given: tuple, named: dict) -> None:
        if network.training and torch.is_grad_enabled():
            speed._count += samples(named or given) or 0

    return network.register_forward_pre_hook(count, with_kwargs=True)
