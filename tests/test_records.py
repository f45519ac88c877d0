"""The schema's errors, and rows that come back from a file as they went in."""

import random

import numpy
import pandas
import pytest

from benchbook import records
from rows import make_row, make_rows

FULL_ROW = make_row(
    reference='an article, 2022; its "first" table',
    device_name="Chip A",
    num_threads=2,
    num_workers=0,
    compiled=False,
    parameters=1_199_882,
    settings='{"includes": "set-up, test", "shuffle": true}',
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


def write_raw(path, *rows):
    """Write rows that the schema may refuse, which `append` would not let through."""
    pandas.DataFrame(rows, columns=records.COLUMNS).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("column", "value", "allowed"),
    [
        ("phase", "trian", "allowed: setup, compile, warmup, train, evaluate, total, parity, idle, calibrate"),
        ("source", "guessed", "allowed: measured, published, digitised, secondary, derived"),
        ("device", "gpu", "allowed: cpu, mps, metal, cuda, tpu"),
        ("status", "failed", "crashed, timeout, interrupted"),
        ("energy_method", "guess", "allowed: nvml, apple_ioreport, rapl, meter, estimate_tdp"),
        ("samples", "many", "allowed: whole numbers"),
        ("samples", "64.5", "allowed: whole numbers"),
        ("samples", "inf", "allowed: whole numbers"),
        ("seconds", "fast", "allowed: numbers"),
        ("seconds", "nan", "allowed: numbers"),
        ("compiled", "yes", "allowed: True, False"),
        ("session", "", "is empty; a value is needed"),
        ("phase", "", "is empty; a value is needed"),
        ("repeat", "", "is empty; a value is needed"),
        ("batch_size", "0", "allowed: 1 or more"),
        ("samples", "-1", "allowed: 0 or more"),
        ("seconds", "-0.1", "allowed: 0 or more"),
        ("accuracy", "73.3", "allowed: 0 to 1"),
        ("utilisation", "-0.01", "allowed: 0 to 1"),
        ("settings", "{shuffle}", "allowed: a JSON object"),
        ("settings", "[1]", "allowed: a JSON object"),
        ("started_at", "2026-11-20 12:00:00", "allowed: UTC time, ISO 8601, ending in Z"),
        ("schema_version", "2", "allowed: 1"),
    ],
)
def test_a_wrong_value_is_named_with_its_file_line_column_and_what_is_allowed(tmp_path, column, value, allowed):
    path = write_raw(tmp_path / "run.csv", make_row(), make_row(index=1) | {column: value}, make_row(index=2))
    with pytest.raises(records.SchemaError) as caught:
        records.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 3: column {column} ")
    assert allowed in message
    assert value in message


def test_several_wrong_values_are_counted(tmp_path):
    path = write_raw(tmp_path / "run.csv", make_row(device="gpu", accuracy=2.0, framework="theano"))
    with pytest.raises(records.SchemaError, match=r"\(and 2 more\)"):
        records.read(path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda rows: rows.assign(colour="red"), "unknown column colour"),
        (lambda rows: rows.drop(columns=["loss", "accuracy"]), "missing column accuracy, loss"),
    ],
)
def test_an_unknown_or_missing_column_is_named(tmp_path, change, problem):
    path = tmp_path / "run.csv"
    change(make_rows([make_row()])).to_csv(path, index=False)
    with pytest.raises(records.SchemaError) as caught:
        records.read(path)
    assert str(caught.value) == f"{path}, line 1: {problem}"


def test_columns_may_come_in_any_order(tmp_path):
    path = tmp_path / "run.csv"
    make_rows([FULL_ROW])[records.COLUMNS[::-1]].to_csv(path, index=False)
    pandas.testing.assert_frame_equal(records.read(path), make_rows([FULL_ROW]))


def test_a_key_that_occurs_twice_is_named_with_its_line(tmp_path):
    path = write_raw(tmp_path / "run.csv", make_row(), make_row(index=1), make_row(index=1, seconds=9.0))
    with pytest.raises(records.SchemaError) as caught:
        records.read(path)
    assert str(caught.value).startswith(f"{path}, line 4: the key machine, study, point")


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n1,2,3\n", b"\xff\xfe\x00"])
def test_a_file_that_is_no_table_of_rows_is_named(tmp_path, content):
    path = tmp_path / "run.csv"
    path.write_bytes(content)
    with pytest.raises(records.SchemaError, match=r"run\.csv: not a table of rows"):
        records.read(path)


def test_a_row_comes_back_from_a_file_as_it_went_in(tmp_path):
    read = records.read(write(tmp_path / "run.csv", FULL_ROW)).iloc[0]
    assert {name: read[name] for name in FULL_ROW} == FULL_ROW
    assert read.drop(list(FULL_ROW)).isna().all()


def test_numbers_come_back_to_the_last_bit(tmp_path):
    draw = random.Random(0)
    seconds = [draw.random() * 10.0 ** draw.randint(-12, 12) for _ in range(500)]
    path = write_raw(tmp_path / "run.csv", *(make_row(index=i, seconds=s) for i, s in enumerate(seconds)))
    assert records.read(path)["seconds"].tolist() == seconds


def test_numbers_of_numpy_are_written_like_those_of_python(tmp_path):
    row = make_row(seconds=numpy.float64(0.1), samples=numpy.int64(64), compiled=numpy.bool_(True))
    read = records.read(write(tmp_path / "run.csv", row)).iloc[0]
    assert (read["seconds"], read["samples"], read["compiled"]) == (0.1, 64, True)


@pytest.mark.parametrize("loss", [float("nan"), numpy.float32("nan"), pandas.NA, None])
def test_a_loss_that_is_not_a_number_is_missing(tmp_path, loss):
    path = write(tmp_path / "run.csv", make_row(loss=loss, status="diverged"))
    assert records.read(path)["loss"].isna().all()
    assert ",nan," not in path.read_text()


def test_an_infinite_loss_is_kept(tmp_path):
    assert records.read(write(tmp_path / "run.csv", make_row(loss=float("inf"))))["loss"].tolist() == [float("inf")]


def test_a_message_of_several_lines_stays_one_line_of_the_file(tmp_path):
    message = 'first, "line"\nsecond\r\n  third\u2028fourth'
    path = write(tmp_path / "run.csv", make_row(status="crashed", message=message), make_row(index=1))
    assert len(path.read_text().splitlines()) == 3
    assert records.read(path)["message"][0] == 'first, "line" second third fourth'


def test_a_file_is_begun_with_one_header_and_rows_are_added_below(tmp_path):
    path = write(tmp_path / "run.csv", make_row(), make_row(index=1), make_row(index=2))
    lines = path.read_text().splitlines()
    assert lines[0] == ",".join(records.COLUMNS)
    assert records.read(path)["index"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("column", [{"colour": "red"}, {"phase": "trian"}, {"study": None}])
def test_a_row_that_breaks_the_schema_is_not_written(tmp_path, column):
    path = write(tmp_path / "run.csv", make_row())
    before = path.read_bytes()
    with pytest.raises(records.SchemaError, match=rf"run\.csv.*{next(iter(column))}"):
        records.append(path, make_row(index=1, **column))
    assert path.read_bytes() == before


@pytest.mark.parametrize("known", [{}, {"energy_method": "nvml"}, {"energy_boundary": "board"}])
def test_joules_that_do_not_say_how_and_where_they_were_read_are_refused(known):
    with pytest.raises(records.SchemaError, match="line 2: energy_joules without energy_method and energy_boundary"):
        make_rows([make_row(energy_joules=3.0, **known)])
    make_rows([make_row(energy_joules=3.0, energy_method="nvml", energy_boundary="board")])


@pytest.mark.parametrize("kept_rows", [0, 1, 2])
def test_a_torn_last_line_is_cut_and_nothing_else(tmp_path, kept_rows):
    path = write(tmp_path / "run.csv", *(make_row(index=index) for index in range(3)))
    lines = path.read_bytes().splitlines(keepends=True)
    whole, torn = b"".join(lines[: kept_rows + 1]), lines[kept_rows + 1]
    for length in (1, len(torn) // 2, len(torn) - 1):
        path.write_bytes(whole + torn[:length])
        assert records.cut_torn_line(path)
        assert path.read_bytes() == whole
    records.append(path, make_row(index=9))
    assert records.read(path)["index"].tolist() == [*range(kept_rows), 9]


def test_a_torn_header_is_cut_and_written_again(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("schema_version,sess")
    assert records.cut_torn_line(path)
    assert len(records.read(write(path, make_row()))) == 1


def test_a_whole_an_empty_and_an_absent_file_have_no_torn_line(tmp_path):
    path = write(tmp_path / "run.csv", make_row())
    before = path.read_bytes()
    (tmp_path / "empty.csv").touch()
    assert not any(records.cut_torn_line(tmp_path / name) for name in ("run.csv", "empty.csv", "absent.csv"))
    assert path.read_bytes() == before


def test_merged_rows_are_the_same_wherever_their_files_lie(tmp_path):
    runs = {
        "run-2": [make_row(run_id="run-2", index=index, seconds=index + 0.5) for index in range(2)],
        "run-1": [make_row(run_id="run-1", phase=phase) for phase in ("setup", "train", "evaluate")],
        "run-3": [make_row(run_id="run-3", machine="attic", samples=None)],
    }
    merged = []
    for order in (["run-1", "run-2", "run-3"], ["run-3", "run-2", "run-1"]):
        folder = tmp_path / "-".join(order)
        for position, run_id in enumerate(order):
            (folder / str(position)).mkdir(parents=True)
            write(folder / str(position) / "rows.csv", *runs[run_id])
        merged.append(records.merge(records.find(folder)))
    pandas.testing.assert_frame_equal(*merged)
    assert merged[0]["run_id"].tolist() == ["run-3", "run-1", "run-1", "run-1", "run-2", "run-2"]
    assert merged[0]["phase"].tolist()[1:4] == ["setup", "train", "evaluate"]  # as they were written


def test_merging_nothing_gives_no_rows_of_the_schemas_types(tmp_path):
    merged = records.merge(records.find(tmp_path))
    pandas.testing.assert_frame_equal(merged, make_rows([]))


def test_a_run_that_stands_in_two_files_is_refused_and_both_are_named(tmp_path):
    for name, row in {"a": make_row(), "b": make_row(run_id="run-2"), "c": make_row()}.items():
        write(tmp_path / f"{name}.csv", row)
    with pytest.raises(records.SchemaError) as caught:
        records.merge(records.find(tmp_path))
    first, second = tmp_path / "a.csv", tmp_path / "c.csv"
    assert str(caught.value) == f"run run-1 stands in more than one file: {first}, {second}"


def test_a_file_of_another_schema_version_is_refused_and_named(tmp_path):
    write(tmp_path / "a.csv", make_row())
    write_raw(tmp_path / "b.csv", make_row(run_id="run-2"), make_row(run_id="run-2", index=1, schema_version=2))
    with pytest.raises(records.SchemaError, match=r"b\.csv, line 3: column schema_version is 2; allowed: 1"):
        records.merge(records.find(tmp_path))


def test_files_of_rows_are_found_at_any_depth(tmp_path):
    deep = tmp_path / "machine" / "study" / "point"
    deep.mkdir(parents=True)
    for path in (deep / "run.csv", deep / "run.json", tmp_path / "run.csv"):
        path.touch()
    assert records.find(tmp_path) == sorted([deep / "run.csv", tmp_path / "run.csv"])
    assert records.find(deep / "run.csv") == [deep / "run.csv"]


@pytest.mark.parametrize(("text", "settings"), [('{"width": 1.0}', {"width": 1.0}), (None, {}), (pandas.NA, {})])
def test_a_rows_settings_are_a_dictionary_empty_where_it_has_none(text, settings):
    assert records.settings(text) == settings
