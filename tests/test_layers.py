"""The layout: packages, each of which imports only those below it, and no module imports
itself through others."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import benchbook
from benchbook import studies
from benchbook.machine import layout

LIBRARY = Path(benchbook.__file__).parent
GUESTS = Path(studies.__path__[1])  # what a page trains and shows
# From the bottom to the top.
PACKAGES = (
    "machine",
    "rows",
    "judging",
    "frameworks",
    "datasets",
    "measuring",
    "record",
    "studies",
    "loop",
    "running",
    "report",
    "commands",
)


@functools.cache
def modules() -> dict[str, Path]:
    """Return each module's file by its name within the library, as `rows.schema`; guests', too."""
    paths = {
        path.relative_to(LIBRARY): path
        for path in sorted(LIBRARY.rglob("*.py"))
        if path.parent != LIBRARY
    }
    paths |= {"studies" / path.relative_to(GUESTS): path for path in sorted(GUESTS.rglob("*.py"))}
    return {
        ".".join(name.with_suffix("").parts).removesuffix(".__init__"): path
        for name, path in paths.items()
    }


@functools.cache
def imports(lazy: bool) -> dict[str, set[str]]:
    """Return which modules of the library each one imports; those within functions only if lazy."""
    return {name: set(_imported(path, lazy)) - {name} for name, path in modules().items()}


def _imported(path: Path, lazy: bool):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if lazy else tree.body:
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").partition(".")[0] == "benchbook"
        ):
            base = node.module.removeprefix("benchbook").removeprefix(".")
            for name in (f"{base}.{alias.name}".strip(".") for alias in node.names):
                yield name if name in modules() else base


def test_the_library_has_these_packages_and_nothing_else():
    entries = {
        path.name for path in LIBRARY.iterdir() if path.suffix == ".py" or any(path.rglob("*.py"))
    }
    assert entries == {*PACKAGES, "__init__.py", "__main__.py"}


def test_a_package_imports_only_packages_below_it_and_contributing_draws_which():
    """An import that others imply is not drawn."""
    guests = {name for name, path in modules().items() if path.is_relative_to(GUESTS)}
    package = {name: name.partition(".")[0] for name in modules()} | dict.fromkeys(guests, "guests")
    below, arrows = {}, set()
    for own in (*PACKAGES, "guests"):
        found = (others for name, others in imports(lazy=True).items() if package[name] == own)
        direct = {package[other] for other in set().union(*found) & set(package)} - {own}
        assert direct <= set(below), f"{own} imports what is above it"
        implied = set().union(*(below[other] for other in direct))
        below[own] = direct | implied
        arrows |= {(own, other) for other in direct - implied}
    text = (layout.root() / "CONTRIBUTING.md").read_text()
    assert {*re.findall(r"^  (\w+)\S* --> (\w+)$", text, re.MULTILINE)} == arrows


def test_no_module_imports_itself_through_others():
    assert [
        *graphlib.TopologicalSorter(imports(lazy=False)).static_order()
    ]  # or a CycleError, which names them


def test_the_environment_has_what_a_user_sets_and_the_path_of_one_file():
    texts = [
        path.read_bytes().decode(errors="ignore")
        for folder in (LIBRARY, GUESTS)
        for path in folder.rglob("*.*")
        if path.suffix != ".pyc"
    ]
    found = {name for text in texts for name in re.findall(r"BENCHBOOK_([A-Z_]+)", text)}
    assert found == {
        "DATA",
        "DEBUG",
        "MACHINE",
        "OUTPUTS",
        "PATIENCE",
        "REPOSITORY",
        "RUN",
        "STUDIES",
    }


NO_DRAWING = {"matplotlib", "IPython", "papermill"}


@pytest.mark.parametrize(
    ("begun", "without"),
    [
        ("import benchbook.studies.experiments.process", NO_DRAWING | {"pandas", "scipy", "tqdm"}),
        (
            "from benchbook.commands import cli; cli.app(['--help'], standalone_mode=False)",
            NO_DRAWING | {"pandas", "scipy", "numpy", "pydantic", "rich", "torch"},
        ),
    ],
)
def test_what_begins_often_imports_only_what_it_needs(begun, without):
    code = f"{begun}\nimport sys\nprint(*{without} & set(sys.modules), sep=', ')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


def test_the_library_knows_no_study_by_name_but_the_one_that_it_has():
    guests = "|".join({*studies.names()} - {"calibrate"}).encode()
    files = (path for path in LIBRARY.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert [path for path in files if re.search(rb"\b(%s)\b" % guests, path.read_bytes())] == []


def test_no_study_imports_another():
    def study(name):
        parts = name.split(".")
        return {*parts[1:2]} & {*studies.names()} if parts[0] == "studies" else set()

    crossing = {
        name
        for name, others in imports(lazy=True).items()
        for each in others
        if study(name) and study(each) - study(name)
    }
    assert crossing == set()
