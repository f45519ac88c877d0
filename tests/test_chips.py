"""Chips: every name that rows, prices and articles use leads to one chip, and no name to two."""

import csv
import math
from pathlib import Path

import pytest
import yaml

from benchbook.record import articles, chips, words


def test_names_that_drivers_and_systems_report_lead_to_their_chips_and_to_no_other():
    """In names.csv, a name without a chip must stay unknown: it belongs to several, or to none
    in the list."""
    with Path(__file__).with_name("names.csv").open(newline="") as file:
        expected = {line["name"]: line["chip"] for line in csv.DictReader(file)}
    assert {name: chips.listed(name) for name in expected} == expected
    assert all(chips.resolve(name) == chip for name, chip in expected.items() if chip)


def test_the_clock_of_a_chips_cores_is_that_of_its_generation():
    """A rate of one size with the cores of another would be another clock."""
    apple = chips.table().query("vendor == 'Apple' and cores.notna() and fp32_tflops.notna()")
    clocks = (1e3 * apple["fp32_tflops"] / apple["cores"] / 2).groupby(apple["architecture"])  # GHz
    assert (clocks.max() / clocks.min()).max() < 1.15, clocks.agg(["min", "max"])


def test_peaks_that_need_dual_issue_say_so():
    """At one product a clock, a core of AMD's would need a clock that no chip has."""
    amd = chips.table().query("vendor == 'AMD' and fp32_tflops.notna()")
    clocks = 1e3 * amd["fp32_tflops"] / amd["cores"] / 2  # GHz
    doubled = set(amd.index[(clocks > 3.3) | amd["cores"].isna()])
    assert set(amd.index[amd["source"].str.contains("dual issue")]) == doubled
    assert {"AMD RX 7900 XTX", "AMD RX 9070 XT", "AMD MI300X"} < doubled


AS_WRITTEN = yaml.safe_load("""
MacBook Pro M3: Apple M3
MacBook Pro 14 M3 Pro: Apple M3 Pro
Mac mini M4: Apple M4
M2 Air: Apple M2
Mac Studio M2 Ultra: Apple M2 Ultra
M4 Max 64GB: Apple M4 Max
Colab: NVIDIA T4
Kaggle P100: NVIDIA P100
RTX 3060 12GB: NVIDIA RTX 3060
3090 24 GB: NVIDIA RTX 3090
A100 80GB: NVIDIA A100 80GB
7900 XTX: AMD RX 7900 XTX
GTX 1080: NVIDIA GTX 1080
RTX 5090 D: NVIDIA RTX 5090 D
""")


@pytest.mark.parametrize("name", AS_WRITTEN)
def test_words_of_computers_clouds_and_memory_hide_no_chip(name):
    assert chips.resolve(name) == AS_WRITTEN[name]


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("MacBook", "names several; allowed: one of Apple M1, "),
        ("RTX 4080 SUPER Laptop GPU", "NVIDIA RTX 4080.*benchbook chips"),
        ("RTX 9090", "benchbook chips"),
        ("M1 Max 28-core GPU", "benchbook chips"),
        ("", "benchbook chips"),
        (
            "RTX 6000",
            "names several; allowed: one of NVIDIA Quadro RTX 6000, NVIDIA RTX 6000 Ada, ",
        ),
    ],
)
def test_a_chip_that_is_not_in_the_list_is_refused_with_the_nearest_and_not_taken_for_another(
    name, named
):
    with pytest.raises(chips.UnknownChip, match=named):
        chips.resolve(name)
    assert chips.canonical(name) == name


def test_boards_and_memories_of_a_product_are_one_and_neighbours_are_not():
    assert {chips.product(name) for name in ("V100", "V100 32GB PCIe", "Tesla V100-SXM2-16GB")} == {
        "NVIDIA V100"
    }
    assert {chips.product(f"M1 Max ({cores}-core GPU)") for cores in (24, 32)} == {"Apple M1 Max"}
    assert chips.product("RTX 4090") == chips.product("RTX 4090 (48GB modified)")
    assert chips.product("RTX 4090") != chips.product("RTX 4090 D")
    assert chips.product("V100") != chips.product("V100S 32GB PCIe")


def test_every_name_leads_to_one_chip_and_every_chip_to_itself():
    assert chips.table()["chip"].is_unique
    for chip, aliases in chips.table()["aliases"].items():
        assert {chips.resolve(name) for name in (chip, *filter(None, aliases.split("|")))} == {chip}


def test_what_is_printed_is_above_0_and_has_a_source():
    printed = chips.table()
    assert (printed.select_dtypes("number").min() > 0).all()
    assert printed["source"].notna().all()


def test_the_published_rows_accelerators_are_in_the_list():
    rows = articles.rows()
    names = set(rows.loc[rows["device"].ne("cpu"), "chip"].dropna())
    assert {name for name in names if chips.canonical(name) not in chips.table().index} == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SXM2 32", {"NVIDIA V100 32GB SXM2"}),
        ("rtx 6000 ada", {"NVIDIA RTX 6000 Ada"}),
        ("M4 Max", {"Apple M4 Max", "Apple M4 Max (32-core GPU)"}),
        ("nothing like it", set()),
        ("6000 RTX Quadro", {"NVIDIA Quadro RTX 6000"}),
    ],
)
def test_a_search_takes_all_whole_words_and_other_names(text, found):
    assert {line["chip"] for line in words.chips(text)} == found
    m4 = {line["chip"] for line in words.chips("M4")}
    assert {"Apple M4", "Apple M4 Pro"} <= m4
    assert not any("A100" in name for name in m4)  # SXM4
    assert len(words.chips("")) == len(chips.table())


@pytest.mark.parametrize(
    ("chip", "precision", "peak"),
    [
        ("NVIDIA A100 80GB SXM", "fp32", 19.49),
        ("NVIDIA A100 80GB SXM", "tf32", 156),
        ("NVIDIA A100 80GB SXM", "amp_bf16", 312),
        ("NVIDIA P100 PCIe 16GB", "fp16", math.nan),  # without matrix units
        ("no chip", "fp32", math.nan),
    ],
)
def test_a_peak_is_the_published_one_and_half_of_16_bits_in_tf32(chip, precision, peak):
    assert chips.peak(chips.canonical(chip), precision) == pytest.approx(peak, nan_ok=True)
