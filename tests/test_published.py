"""Published rows: every figure that was found stands somewhere, with the value and the place it
was printed."""

from decimal import Decimal

import pandas
import pytest

from benchbook.machine import layout
from benchbook.record import articles, claims, observations
from benchbook.rows import records

# What a printed unit is in the unit of a row's column.
UNITS = {
    "min": 60,
    "s": 1,
    "h:m": 60,
    "ms/image": Decimal("0.001"),
    "nats": 1,
    "img/s": 1,
    "samples/s": 1,
}
UNITS |= {
    "seq/s": 1,
    "GByte": 10**9,
    "GB": 10**9,
    "fraction": 1,
    "%": Decimal("0.01"),
    "epochs": 1,
    "px": 1,
    "W": 1,
}
PRINTED = {  # a cell that holds more than a number
    "9h06m": "546",
    "76.4 (reached at epoch 86)": "76.4",
    "75.7 (reached at epoch 84)": "75.7",
    "8.5 (=6.75*1.26) or 9.1 (=6.75/0.74)": "8.5",
}
ROWS = [
    "mnist_speedup",
    "vae_stability",
    "mobilenetv2_energy",
    "simclr_epochs",
    "segmentation_scaling",
]
ROWS += ["resnet50_cost", "related"]
LANGUAGE = "gpt_tokens"  # its figures are those of the record


def figures():
    return pandas.read_csv(layout.published() / "figures.csv", dtype=str, keep_default_na=False)


@pytest.fixture(scope="module")
def rows():
    return articles.rows()


PAID_FOR = {
    ("purchase", "unit"),
    ("electricity", "kwh"),
}  # kinds of prices, and the unit that each is paid for
PAID_FOR |= {(kind, per) for kind in ("on_demand", "reserved") for per in ("hour", "month")}


def test_what_is_kept_as_a_claim_or_a_price_is_one():
    kept = figures()
    named = kept.loc[kept["kept_in"] == "claims.csv", "kept_as"]
    assert set(named) <= set(claims.read()["id"])
    prices = articles.prices()
    assert prices[["machine", "includes", "source"]].ne("").all(axis=None)
    assert {*zip(prices["kind"], prices["per"], strict=True)} <= PAID_FOR
    assert prices["currency"].str.fullmatch("[A-Z]{3}").all()
    assert prices["amount"].gt(0).all()
    days = pandas.to_datetime(prices["date"], format="%Y-%m-%d")
    assert days.between("2010-01-01", pandas.Timestamp.today()).all()
    amounts = dict(zip(prices["machine"] + " " + prices["kind"], prices["amount"], strict=True))
    listed = kept[kept["kept_in"] == "prices.csv"]
    assert dict(zip(listed["kept_as"], listed["value"].astype(float), strict=True)) == amounts


def in_rows():
    kept = figures()
    return kept[kept["kept_in"].str.removesuffix(".csv").isin(ROWS)]


def row_of(rows, line):
    machine, point, phase, index, column = line["kept_as"].split(" ")
    found = rows[(rows["machine"] == machine) & (rows["point"] == point) & (rows["phase"] == phase)]
    found = found[
        (found["index"] == int(index)) & (found["study"] == line["kept_in"].removesuffix(".csv"))
    ]
    assert len(found) == 1, line["kept_as"]
    return found.iloc[0], column


def held(row, column):
    name, _, key = column.partition(".")
    return row["settings"][key] if key else row[name]


def test_every_study_has_its_published_rows_and_every_file_obeys_the_schema(rows):
    assert {path.stem for path in layout.published_rows()} == {*ROWS, LANGUAGE}
    for path in layout.published_rows():
        assert set(records.read(path)["study"]) == {path.stem}
    assert not (rows["source"] == "measured").any()
    assert rows["reference"].notna().all()


def test_every_figure_of_the_list_stands_somewhere_or_says_why_not():
    kept = figures()
    assert len(kept) == 336
    assert (kept["kept_as"] != "").all()
    nowhere = kept[kept["kept_in"] == ""]["kept_as"]
    assert nowhere.str.contains("^left out: |computes it$").all()
    assert nowhere.str.startswith("left out: ").sum() == 2


def test_a_row_holds_the_figure_that_was_printed_its_rounding_and_where_it_was_found(rows):
    for line in in_rows().to_dict("records"):
        row, column = row_of(rows, line)
        assert line["source"] in row["reference"]
        assert row["source"] == ("published" if line["origin"] == "exact" else line["origin"]), (
            line["kept_as"]
        )
        if line["value"] == "nan":
            assert (column, row["status"]) == ("status", "diverged")
            continue
        digits = Decimal(PRINTED.get(line["value"], line["value"]))
        assert float(held(row, column)) == pytest.approx(
            float(digits * UNITS[line["unit"]]), rel=1e-12
        ), line["kept_as"]
        if column == "seconds" and line["unit"] in ("min", "h:m") and line["origin"] != "digitised":
            half = Decimal(5).scaleb(digits.as_tuple().exponent - 1) * 60
            assert row["settings"]["rounding"]["seconds"] == pytest.approx(float(half)), line[
                "kept_as"
            ]


def test_no_row_holds_a_measure_that_is_not_in_the_list(rows):
    listed = {
        (line["kept_in"], *line["kept_as"].split(" ")[:4]) for line in in_rows().to_dict("records")
    }
    names = ["machine", "point", "phase", "index"]
    rows = rows[rows["study"] != LANGUAGE].to_dict("records")
    held_rows = {(f"{row['study']}.csv", *(str(row[name]) for name in names)) for row in rows}
    assert held_rows - listed == {
        # The M2's own figure is lost, and "26 % faster" can be read in two ways: one cell of the
        # list, two rows.
        ("simclr_epochs.csv", "macbook-air-13-m2", "reference-mps-less", "total", "0"),
        # The machine whose energy the article gives as a ratio alone.
        ("mobilenetv2_energy.csv", "colab-v100", "reference-cuda", "train", "0"),
        # 328 ms / 10 to 20: the range is a claim in the list.
        ("segmentation_scaling.csv", "quadro-rtx-6000", "reference-cuda", "train", "0"),
    }


def test_each_row_of_the_language_models_is_a_figure_of_the_record(rows):
    """The same article, chip and value; so that nothing is learnt from it twice."""
    figures, own = articles.read(), rows[rows["study"] == LANGUAGE]
    units = {"min": 60, "tokens/s": 1 / 1024, "nats/char": 1}
    listed = figures[figures["unit"].isin(list(units))].assign(
        printed=lambda table: table["value"] * table["unit"].map(units)
    )
    known = {(line["article"], round(line["printed"], 6)) for line in listed.to_dict("records")}
    for row in own.to_dict("records"):
        values = [
            row[name]
            for name in ("seconds", "samples_per_second", "loss")
            if pandas.notna(row[name])
        ]
        assert (row["reference"].partition(";")[0], round(values[0], 6)) in known
    assert len(own) == 19
    images = observations.images().query("origin == @observations.RECORD")
    alike = ["publication", "work", "computed", "framework", "chip", "rate", "batch_size"]
    assert not images.duplicated(alike).any()
