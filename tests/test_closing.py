"""The result of a notebook: the verdict first, the number with its bounds, what the article
says, and one table."""

import json
import re

import pandas
import pytest

from benchbook import studies
from benchbook.frameworks.devices import Device
from benchbook.judging import wording
from benchbook.loop.rate import Rate
from benchbook.record import estimates
from benchbook.report import closing
from benchbook.report import tables as report_tables
from benchbook.running import progress
from benchbook.studies.experiments.measurement import Measurement
from benchbook.studies.experiments.notebook import Experiment
from benchbook.studies.results.evidence import Evidence
from made.rows import make_row, windows, write
from made.study_rows import NOTHING, evidence, given, point

STUDIES = studies.every()
RUN = "20260101T000000Z-0000000"
GIVEN = {"device": "cpu", "variant": "reference"}
BUSY = {"cpu_cores": 2, "cpu_busy_seconds": 0.0, "cpu_own_seconds": 0.0, "cpu_stolen_seconds": 0.0}
DISTURBED = {
    "": {},
    "the machine was busy": {"cpu_busy_seconds": 9.0},
    "it was too hot for full speed": {"thermal_pressure": "heavy"},
    "it ran on battery": {"power_source": "battery"},
}


@pytest.mark.parametrize("words", DISTURBED)
def test_a_disturbed_point_says_so_in_notebook_and_terminal(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    experiment = Experiment(
        {},
        Device("cpu", "a CPU"),
        None,
        measurement=Measurement("mnist_speedup", "desk", GIVEN, "s"),
    )
    own = {"machine": "desk", "session": "s", "point": experiment.measurement.folder.name}
    steady = [
        row
        for n in range(4)
        for row in windows([100 + n / 10, 101, 100], run_id=f"{RUN}{n}", **own)
    ]
    write(
        *steady, *windows([900] * 3, run_id="20250101T000000Z-00000000", **own | {"session": "r"})
    )
    write(*windows([500] * 3, run_id="other", machine="desk", session="s", point="other"))
    clock = [BUSY | {"awake_seconds": 10.0 * n, "elapsed_seconds": 10.0 * n} for n in range(4)]
    clock[-1] |= DISTURBED[words]
    conditions = [sample | {"index": n - 1 if n else None} for n, sample in enumerate(clock)]
    for n in range(4):
        path = experiment.measurement.folder / f"{RUN}{n}.json"
        machine = {"hypervisor": "WSL" if words else ""}
        described = {"run_id": f"{RUN}{n}", "conditions": conditions, "machine": machine}
        path.write_text(json.dumps(described))
    found = experiment.end()
    assert set(found.measured["session"]) == {"s"}  # neither an earlier session nor another point
    assert set(found.measured["point"]) == {own["point"]}
    said = closing.answer(found, studies.every()["mnist_speedup"]).data
    first = said.partition("\n")[0]
    assert re.match(r"\*\*\d+ seconds an epoch of MNIST \(\d+ to \d+", first)
    assert words in first.rpartition(" on ")[0]
    assert ("how busy the host was is hidden (WSL)" in said.splitlines()[-1]) == bool(words)
    assert "session s" in capsys.readouterr().out.lower()
    assert progress.result(experiment.measurement.folder).startswith("unstable: ") == bool(words)


@pytest.mark.parametrize("name", STUDIES)
def test_each_study_answers_with_one_figure_and_at_most_eight_columns(name, monkeypatch):
    first = given(name, "one machine", True)
    shown = []
    monkeypatch.setattr(closing, "display", lambda *parts: shown.extend(parts))
    own = first.measured[
        first.measured["study"].eq(name) & first.measured["samples_per_second"].notna()
    ]
    own = own if name == "calibrate" else own[own["point"] == own["point"].iloc[0]]
    rows = pandas.concat(
        [own.assign(point=own["point"].iloc[0]), first.published], ignore_index=True
    )
    closing.show(Evidence(rows, own_first=True), STUDIES[name])
    answer, figure, note, table, folded = shown
    assert "Source: this machine" in note.data or name == "calibrate"
    sentence = answer._repr_markdown_()[1]["sentence"]  # for pages
    assert answer.data.startswith(f"**{report_tables.markdown(sentence)}**")
    assert figure._repr_png_()
    assert table.data.count("<th>") <= 8
    assert "NaN" not in table.data + re.sub('base64,[^"]*', "", folded.data)
    assert "<details>" in folded.data


def test_a_point_of_another_size_is_an_answer_too_and_a_failure_is_in_its_own_words():
    energy = {
        "energy_joules": 320.0,
        "energy_method": "nvml",
        "energy_boundary": "board",
        "idle_watts": 12.0,
    }
    other = evidence(windows((250.0, 320.0, 400.0), batch_size=7, **energy), published=True)
    said = closing.answer(other, studies.every()["mnist_speedup"]).data
    assert re.match(r"\*\*188 seconds an epoch of MNIST \(150 to 240; .*, batch 7", said)
    assert "Energy: 0.50 J an image" in said
    assert "No GPU was measured here" in said
    assert "33.4 / 19.6 = 1.704" in said
    smaller = evidence(point("segmentation_scaling", image_size=128), published=True)
    said = closing.answer(smaller, studies.every()["segmentation_scaling"]).data.partition("\n")[0]
    assert re.match(r"\*\*\S+ ms an image \(.*\) training on a Chip A, 128 px", said)
    row = make_row(study="resnet50_cost", status="out_of_memory", message="no room") | NOTHING
    failed = evidence([row], published=True)
    assert closing.answer(failed, studies.every()["resnet50_cost"]).data.startswith(
        "**Out of memory: no room.**"
    )


@pytest.mark.parametrize(
    "device",
    [
        "NVIDIA RTX 4090 (cuda, PyTorch)",
        "NVIDIA GeForce RTX 4090 (cuda, PyTorch)",  # as the driver calls it
        "a processor (cpu, PyTorch)",
    ],
)
def test_a_loop_of_ones_own_says_what_other_chips_would_reach(device, monkeypatch):
    shown = []
    monkeypatch.setattr(closing, "display", shown.append)
    closing.show_rate(Rate(500.0, 2, 1.0, ((500.0, 1.0),) * 2, None, None, None, 0.0, device))
    tables = [part for part in shown if isinstance(part, pandas.DataFrame)]
    assert len(tables) == ("4090" in device)  # the record has no CPU of servers
    for table in tables:
        [line] = table[table["chip"] == "NVIDIA H100"].to_dict("records")
        ratio = estimates.of_any_work("NVIDIA RTX 4090", "NVIDIA H100")
        assert line["samples a second"].startswith(f"{wording.number(500 * ratio.value)} (")
        assert "NVIDIA RTX 4090" not in set(table["chip"])
