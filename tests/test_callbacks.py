"""The callbacks of docs/examples in the real libraries; those of Lightning and transformers need them installed."""

import re
import sys

import pytest

from benchbook import loop
from test_loop import EXAMPLES

PRINTED = re.compile(r"samples/s \(range .* of \d+ windows?\) on")


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    """Make the examples importable, and windows short."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(EXAMPLES)])
    monkeypatch.setattr(loop, "made", [])
    monkeypatch.setattr(loop.Meter.__init__, "__defaults__", ("cpu", "", 0.02, 5.0))


def data(batch_size=8):
    import torch

    inputs, targets = torch.randn(512, 4), torch.randint(2, (512,))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size)


def judge(said, most_steps):
    [meter] = loop.made
    assert PRINTED.search(said)
    assert len(meter.windows) - loop.WARM_UP >= 6
    steps = sum(samples for samples, _ in meter.windows) / meter.samples
    assert steps < most_steps  # the training ended early


def test_keras_fits_until_the_rate_is_known(capsys):
    keras = pytest.importorskip("keras")
    import numpy
    from keras_meter import Speed

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(numpy.zeros((512, 4)), numpy.zeros(512), 8, epochs=1000, verbose=0, callbacks=[Speed(8)])
    judge(capsys.readouterr().out, 64_000)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Lightning's own: advice where there is Slurm, and what torch will drop
def test_lightning_trains_until_the_rate_is_known(capsys, tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    import torch
    from lightning_meter import Speed

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = torch.nn.Linear(4, 2)

        def training_step(self, batch, place):
            return torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_epochs=1000, callbacks=[Speed(8)], default_root_dir=tmp_path, **quiet)
    trainer.fit(Module(), data())
    judge(capsys.readouterr().out, 64_000)


@pytest.mark.slow
def test_hugging_faces_trainer_trains_until_the_rate_is_known(capsys, tmp_path):
    transformers = pytest.importorskip("transformers")
    import torch
    from trainer_meter import Speed

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, inputs, labels):
            outputs = self.layer(inputs)
            return {"loss": torch.nn.functional.cross_entropy(outputs, labels), "logits": outputs}

    lines = [{"inputs": inputs, "labels": target} for inputs, target in data().dataset]
    given = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "use_cpu": True, "report_to": []}
    arguments = transformers.TrainingArguments(
        tmp_path, num_train_epochs=1000, save_strategy="no", disable_tqdm=True, **given
    )
    transformers.Trainer(Network(), arguments, train_dataset=lines, callbacks=[Speed()]).train()
    judge(capsys.readouterr().out, 64_000)
