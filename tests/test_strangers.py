"""What strangers send: each case of strangers.yaml is accepted, or refused in one line that names
the fault, by the report and by `add`; the rest is read, and nothing of a refused pack is written."""

import zipfile

import pytest

from benchbook.machine import layout
from benchbook.rows import manifests, records
from benchbook.studies.checks import CHECKS
from made import strangers
from made.rows import COMMITTED, contents, make_row, make_zip, write, write_machine

CASES = strangers.cases()
KEPT, WITHOUT_FIRST = 47, 34  # rows of the three runs, and of the other two
WORDS = {
    "NAME": layout.NAME_RULE,
    "PLACE": "allowed: <machine>/<study>/<point>/<run_id>.csv and .json",
}


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_accepted_or_refused_by_name(name, command, tmp_path, monkeypatch):
    case = CASES[name]
    says = case.get("says", "")
    for word, text in WORDS.items():
        says = says.replace(word, text)
    if "members" in case:
        folder = "desk/mnist_speedup/reference-cpu/"
        sent = {each.replace("@", folder): text for each, text in case["members"].items()}
    else:
        files = strangers.changed(strangers.base(), case)
        monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "outputs"))
        runs, said = write_machine(COMMITTED.name, files), []
        described = manifests.read_all(runs, said.append)
        rows = CHECKS.consistent(records.gather(runs, said.append), described, said.append)
        assert len(rows) == case.get("kept", WITHOUT_FIRST if says else KEPT), said
        assert not says or any(says in line and str(tmp_path) not in line for line in said), said
        others = (strangers.SECOND, strangers.CEILINGS)
        sent = {
            f"{COMMITTED.name}/{path}": text
            for path, text in files.items()
            if not any(run in path for run in others)
        }
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "theirs"))
    write(make_row(run_id="run-0"))
    archive = make_zip(tmp_path / "sent.zip", sent, method=zipfile.ZIP_DEFLATED)
    before = contents(tmp_path / "theirs")
    check(*command("add", archive), says)
    assert (contents(tmp_path / "theirs") == before) is bool(says)


def check(status: int, printed: str, says: str) -> None:
    lines = printed.splitlines()
    assert status == (2 if says else 0), printed
    assert lines[-1].startswith("error: ") is bool(says)
    assert says in lines[-1]
    assert len(lines[-1]) < 600
