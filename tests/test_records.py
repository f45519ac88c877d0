"""The schema's errors, and rows that come back from a file as they went in."""

import numpy
import pandas
import pytest

from benchbook.rows import records
from benchbook.rows.schema import REQUIRED
from made.rows import make_row, make_rows

FULL_ROW = make_row(
    reference='an article, 2022; its "first" table',
    device_name="Chip A",
    num_threads=2,
    num_workers=0,
    compiled=False,
    parameters=1_199_882,
    settings={"shuffle": [True, None], "includes": "set-up, test"},
    epoch=1,
    started_at="2026-11-20T12:00:00.125Z",
    seconds=0.1 + 0.2,
    loss=-1.25e-17,
    accuracy=1.0,
    accuracy_metric="top1",
    peak_memory_bytes=2**53 + 1,
    message="NA",
)


def write(path, *rows):
    for row in rows:
        records.append(path, row)
    return path


def write_table(path, table):
    records.as_text(table).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("column", records.COLUMNS)
def test_a_column_that_a_file_lacks_is_empty_and_a_required_one_an_error(tmp_path, column):
    path = write_table(tmp_path / "run.csv", make_rows([make_row()]).drop(columns=column))
    if column == "settings":
        assert records.read(path)[column].tolist() == [{}]
    elif column not in REQUIRED:
        assert records.read(path)[column].isna().all()
    else:
        with pytest.raises(
            records.SchemaError, match=rf"^{path}, line 1: missing column {column}$"
        ):
            records.read(path)


def test_a_row_comes_back_from_a_file_as_it_went_in_whatever_the_order_of_columns(tmp_path):
    path = write(tmp_path / "run.csv", FULL_ROW)
    read = records.read(path).iloc[0]
    assert {name: read[name] for name in FULL_ROW} == FULL_ROW
    assert read.drop(list(FULL_ROW)).isna().all()
    assert (
        records.texts(path, "run")["settings"][0]
        == '{"includes": "set-up, test", "shuffle": [true, null]}'
    )
    assert records.as_text(make_rows([make_row()]))["settings"].isna().all()
    write_table(path, make_rows([FULL_ROW])[records.COLUMNS[::-1]])
    pandas.testing.assert_frame_equal(records.read(path), make_rows([FULL_ROW]))


def test_what_a_run_hands_in_is_written_as_a_file_holds_it(tmp_path):
    losses = [float("nan"), numpy.float32("nan"), pandas.NA, None, float("inf")]
    message = 'first, "line"\nsecond\r\n  third\u2028fourth'
    numbers = {
        "seconds": numpy.float64(0.1),
        "samples": numpy.int64(64),
        "compiled": numpy.bool_(True),
    }
    rows = [
        make_row(loss=loss, index=place, message=message, **numbers)
        for place, loss in enumerate(losses)
    ]
    path = write(tmp_path / "run.csv", *rows)
    read, lines = records.read(path), path.read_text().splitlines()
    assert lines[0] == ",".join(records.COLUMNS)
    assert len(lines) == 1 + len(rows)
    assert ",nan," not in path.read_text()
    assert read["loss"].isna().tolist() == [True] * 4 + [False]
    assert read["loss"].iloc[4] == float("inf")
    assert read["message"].tolist() == ['first, "line" second third fourth'] * 5
    assert read[list(numbers)].drop_duplicates().to_numpy().tolist() == [[0.1, 64, True]]


NOT_WRITTEN = [("colour", "red"), ("phase", "trian"), ("study", None), ("schema_version", 1)]
NOT_WRITTEN += [
    (name, value) for name in ("samples", "batch_size") for value in (True, "64.5", [1], -1, 2**63)
]


@pytest.mark.parametrize(("column", "value"), NOT_WRITTEN)
def test_a_row_that_breaks_the_schema_is_not_written(tmp_path, column, value):
    path = write(tmp_path / "run.csv", make_row())
    before = path.read_bytes()
    with pytest.raises(records.SchemaError, match=rf"run\.csv.*column {column}"):
        records.append(path, make_row(index=1) | {column: value})
    assert path.read_bytes() == before


@pytest.mark.parametrize("kept_rows", [0, 1, 2])
def test_a_torn_last_line_is_cut_and_nothing_else(tmp_path, kept_rows):
    path = write(tmp_path / "run.csv", *(make_row(index=index) for index in range(3)))
    (tmp_path / "empty.csv").touch()
    assert not any(
        records.cut_torn_line(tmp_path / name) for name in ("run.csv", "empty.csv", "absent.csv")
    )
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    whole, torn = b"".join(lines[: kept_rows + 1]), lines[kept_rows + 1]
    for length in (1, len(torn) // 2, len(torn) - 1):
        path.write_bytes(whole + torn[:length])
        assert records.cut_torn_line(path)
        assert path.read_bytes() == whole
    records.append(path, make_row(index=9))
    assert records.read(path)["index"].tolist() == [*range(kept_rows), 9]
    path.write_text("schema_version,sess")  # and so is a torn header
    assert records.cut_torn_line(path)
    assert len(records.read(write(path, make_row()))) == 1


def test_merged_rows_are_the_same_wherever_their_files_lie(tmp_path):
    runs = {
        "run-2": [make_row(run_id="run-2", index=index, seconds=index + 0.5) for index in range(2)],
        "run-1": [
            make_row(run_id="run-1", phase=phase) for phase in ("setup", "train", "evaluate")
        ],
        "run-3": [make_row(run_id="run-3", machine="attic", samples=None)],
    }
    merged = []
    for order in (["run-1", "run-2", "run-3"], ["run-3", "run-2", "run-1"]):
        folder = tmp_path / "-".join(order)
        for position, run_id in enumerate(order):
            (folder / str(position)).mkdir(parents=True)
            write(folder / str(position) / "rows.csv", *runs[run_id])
        merged.append(records.merge(folder))
    pandas.testing.assert_frame_equal(*merged)
    assert merged[0]["run_id"].tolist() == ["run-3", "run-1", "run-1", "run-1", "run-2", "run-2"]
    assert merged[0]["phase"].tolist()[1:4] == [
        "setup",
        "train",
        "evaluate",
    ]  # as they were written


def test_merging_nothing_gives_no_rows_of_the_schemas_types(tmp_path):
    pandas.testing.assert_frame_equal(records.merge(tmp_path), make_rows([]))
