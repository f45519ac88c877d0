"""A second process renders figures, as this one would, and never outlives it."""

import subprocess
import sys
from contextlib import closing

import pandas
import psutil
import pytest
from matplotlib.ticker import FuncFormatter

from benchbook import figures
from benchbook.painter import Painter
from benchbook.study import Drawing

TABLE = pandas.DataFrame({"rate": [1.5]})


def drawing(title: str) -> Drawing:
    with figures.style():
        figure, axes = figures.canvas(2.0)
        axes.plot([1, 2], [1, 3])
        axes.set_title(title)
    return Drawing.titled(figure, TABLE, "A line")


@pytest.fixture(scope="module")
def painter():
    with closing(Painter()) as one:
        yield one


def test_it_writes_what_this_process_would(tmp_path, painter):
    here, there = tmp_path / "here", tmp_path / "there"
    for number, title in enumerate(("first", "second")):
        (one := drawing(title)).save(there, f"chart-{number}", painter)
        drawing(title).save(here, f"chart-{number}")
        assert one.picture == (here / f"chart-{number}.png").read_bytes()
    assert len(names := sorted(path.name for path in here.iterdir())) == 10
    assert [name for name in names if (there / name).read_bytes() != (here / name).read_bytes()] == []


def test_a_figure_that_cannot_be_handed_over_is_an_error_of_its_own(tmp_path, painter):
    one, other = drawing("with a lambda"), drawing("without")
    one.figure.axes[0].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value} s"))
    for each in (one, other):
        each.save(tmp_path, "chart", painter)
    with pytest.raises(AttributeError, match="lambda"):
        _ = one.picture
    assert other.picture


def test_a_figure_that_cannot_be_written_is_an_error(tmp_path, capfd):
    (tmp_path / "file").touch()
    with closing(Painter()) as painter:
        one = drawing("nowhere to go")
        one.save(tmp_path / "file", "chart", painter)
        with pytest.raises(RuntimeError, match="renders figures has failed"):
            _ = one.picture
    assert "FileExistsError" in capfd.readouterr().err


def test_it_ends_with_the_process_that_made_it():
    program = "import time; from benchbook.painter import Painter; print(Painter()._process.pid); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True) as maker:
        rendering = psutil.Process(int(maker.stdout.readline()))
        maker.kill()
    assert psutil.wait_procs([rendering], timeout=30)[1] == []
