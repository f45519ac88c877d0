"""Names of machines, devices and data sets for people: of chips that there are."""

import json

import pytest
import yaml

from benchbook.record import articles, naming
from made.rows import make_row, make_rows


def names(*rows, folder=None):
    return naming.from_rows(make_rows([make_row(**row) for row in rows]), folder)


@pytest.mark.parametrize(
    ("driver", "name"),
    yaml.safe_load("""
- ["Intel(R) Xeon(R) CPU @ 2.20GHz", Intel Xeon]
- ["Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz", Intel Core i7-9750H]
- [AMD EPYC 7B13 64-Core Processor, AMD EPYC 7B13]
- [AMD Ryzen 7 5800H with Radeon Graphics, AMD Ryzen 7 5800H]
- [Apple M1 Pro (14-core GPU), Apple M1 Pro]
- [NVIDIA GeForce RTX 4090, NVIDIA RTX 4090]
- [aarch64, aarch64]
"""),
)
def test_a_chips_name_is_without_marks_cores_and_clock(driver, name):
    assert naming.chip_name(driver) == name


def test_an_id_gives_cores_and_memory_where_no_manifest_does():
    amd, apple = "amd-epyc-2core-24gb", "apple-m1-8core-16gb"
    made = names(
        {"machine": amd, "chip": "AMD EPYC"},
        {"machine": apple, "chip": "Apple M1", "device": "mps"},
    )
    assert made.place({"machine": amd, "device": "cpu"}) == "AMD EPYC, 2 cores, 24 GB, CPU"
    assert made.place({"machine": apple, "device": "mps"}) == "Apple M1, 16 GB, GPU"
    assert made.machine(apple) == "Apple M1, 16 GB"
    assert made.in_sentence({"machine": amd, "device": "cpu"}) == "a 2-core AMD EPYC"
    assert made.in_sentence({"machine": apple, "device": "mps"}) == "an Apple M1's GPU"
    assert made.machine("unheard-of") == "unheard-of"


def test_a_manifest_says_what_the_owners_own_name_does_not(tmp_path):
    run = tmp_path / "desk" / "mnist_speedup" / "reference-cpu"
    run.mkdir(parents=True)
    described = {
        "name": "desk",
        "chip": "AMD EPYC",
        "physical_cores": 8,
        "memory_bytes": 33_285_996_544,
    }
    (run / "20260101T000000Z-12345678.json").write_text(json.dumps({"machine": described}))
    for folder in (tmp_path, tmp_path / "desk"):
        made = names({"chip": "AMD EPYC"}, folder=folder)
        assert made.machine("desk") == "AMD EPYC, 8 cores, 31 GB (desk)"
    assert names({"chip": "AMD EPYC"}).machine("desk") == "AMD EPYC"


def test_a_chip_of_its_own_goes_by_its_name_and_number():
    line = {
        "machine": "box",
        "device": "cuda",
        "device_name": "NVIDIA GeForce RTX 4090",
        "chip": "AMD EPYC",
    }
    made = names(line, line | {"device": "cpu", "device_name": "AMD EPYC"})
    assert made.place(line) == "NVIDIA RTX 4090"
    assert made.place(line | {"device_count": 4}) == "4 x NVIDIA RTX 4090"
    assert made.place({"machine": "box", "device": "cpu"}) == "AMD EPYC, CPU"
    assert made.in_sentence(line) == "an NVIDIA RTX 4090"
    assert made.in_sentence(line | {"device_count": 4}) == "4 NVIDIA RTX 4090"
    assert made.in_sentence({"machine": "box", "device": "cpu"}) == "an AMD EPYC"


def test_a_computer_that_an_article_names_after_its_gpu_is_not_that_gpu():
    made = naming.from_rows(articles.rows(), None)
    assert made.place({"machine": "p100-server-256gb", "device": "cuda"}) == "NVIDIA P100"
    assert made.place({"machine": "p100-server-256gb", "device": "cpu"}).startswith(
        "server with NVIDIA P100"
    )
    assert (
        made.in_sentence({"machine": "p100-server-256gb", "device": "cpu"})
        == "the CPU of a server with an NVIDIA P100"
    )


@pytest.mark.parametrize(
    ("machine", "is_given"),
    [
        ("anna", True),
        ("apple-m2-8core-16gb", False),
        ("apple-m2-8core-16gb-4606", False),  # digits of a fingerprint, and of a session
        ("apple-m2-8core-16gb-4606-1a2b", False),
        ("apple-m2-8core-16gb-anna", True),
    ],
)
def test_like_machines_are_of_one_kind_only_where_nobody_gave_a_name(tmp_path, machine, is_given):
    about = {"chip": "Apple M2", "physical_cores": 8, "memory_bytes": 16 * 2**30}
    about["accelerators"] = ["Apple M2"]
    for each in (machine, "apple-m2-8core-16gb-ffff"):
        run = tmp_path / each / "mnist_speedup" / "reference-cpu"
        run.mkdir(parents=True)
        (run / "20260101T000000Z-1.json").write_text(json.dumps({"machine": about}))
    rows = [{"machine": each, "chip": "Apple M2"} for each in (machine, "apple-m2-8core-16gb-ffff")]
    made = names(*rows, folder=tmp_path)
    one, other = (made.kind({"machine": each["machine"], "device": "mps"}) for each in rows)
    assert (one == other) is not is_given
    name = f"Apple M2, 16 GB ({machine})" if is_given else "Apple M2, 16 GB (no. 1)"
    assert made.machine(machine) == name


@pytest.mark.parametrize(
    ("yours", "ending"), [((), ["no. 1", "no. 2"]), (("one",), ["yours", "another"])]
)
def test_of_two_like_machines_one_may_be_the_readers(yours, ending):
    rows = make_rows([make_row(machine=machine, chip="Chip A") for machine in ("one", "two")])
    made = naming.from_rows(rows, None, frozenset(yours))
    assert [made.machine(name) for name in ("one", "two")] == [
        f"Chip A ({each})" for each in ending
    ]
