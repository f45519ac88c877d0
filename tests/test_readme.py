"""README and its kin: what they name exists."""

import os
import re
import runpy
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer
import yaml

import benchbook
from benchbook.commands import cli
from benchbook.frameworks import devices
from benchbook.judging import verdicts
from benchbook.machine import layout, sessions
from benchbook.record import estimates
from benchbook.rows import networks
from benchbook.running import profiles
from benchbook.studies.checks import CHECKS
from made.rows import COMMITTED, make_row, write

DOCS = (layout.root() / "docs").glob("*.md")
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    *(f"docs/{path.name}" for path in DOCS),
)
HIDDEN = layout.root() / ".github"
LIBRARY = Path(benchbook.__file__).parent


def read(name: str) -> str:
    return (layout.root() / name).read_text()


def test_every_make_variable_exists():
    variables = set(re.findall(r"^([A-Z]+) [?:]=", read("Makefile"), re.MULTILINE))
    for page in PAGES:
        assert set(re.findall(r"\bmake [^`\n]*?\b([A-Z]+)=", read(page))) <= variables, page


@pytest.mark.parametrize("name", ["PYTHONHOME", "PYTHONOPTIMIZE"])
def test_make_names_a_variable_of_python_and_does_not_pass_it_on(name):
    words = ["make", "--no-print-directory", "--eval", f"shown: ; @echo home $${name}", "shown"]
    made = subprocess.run(
        words, capture_output=True, text=True, cwd=layout.root(), env=os.environ | {name: "2"}
    )
    assert (made.stdout, f"{name}=2 is not used" in made.stderr) == ("home\n", True)


def test_make_help_explains_every_target():
    makefile = read("Makefile")
    declared = re.search(r"^\.PHONY: (.*)", makefile, re.MULTILINE)[1].split()
    shown = subprocess.run(
        ["make", "help"], capture_output=True, text=True, check=True, cwd=layout.root()
    ).stdout
    assert set(re.findall(r"^  make (\S+) +\S", shown, re.MULTILINE)) == set(declared)


LONG = {
    "measure",
    "report",
    "share",
    "study",
}  # over 10 s, or with GitHub: these lines are parsed, and do not run


def command_lines() -> set[tuple[str, ...]]:
    """Return the words after `benchbook` in each line of the pages, the notebooks and the report,
    and in those that make runs for their targets."""
    folder = layout.root() / "notebooks"
    cells = [cell["source"] for path in folder.glob("*.ipynb") for cell in layout.cells(path)]
    shown = [path.read_text() for path in (LIBRARY / "report" / "templates").glob("*.html")]
    text = "\n".join([*map(read, PAGES), *cells, *shown]).replace("<code>", "`")
    text = text.replace("</code>", "`")
    lines = re.findall(r"(?:`|bin/|^|; )benchbook ([a-z-][^`\n]*)", text, re.MULTILINE)
    for made in set(re.findall(r"(?:`|^)make ([a-z][^`\n]*)", text, re.MULTILINE)):
        words = ["make", "--dry-run", *shlex.split(made, comments=True)]
        ended = subprocess.run(words, capture_output=True, text=True, cwd=layout.root())
        assert ended.returncode == 0, ended.stderr
        lines += re.findall(r"bin/benchbook (.*)", ended.stdout)
    return {tuple(shlex.split(line, comments=True)) for line in lines}


def test_every_command_line_of_the_pages_is_parsed_and_runs_if_it_is_short(
    command, monkeypatch, tmp_path
):
    first = devices.installed()[:1]  # to ask one framework for its devices takes seconds
    monkeypatch.setattr(devices, "installed", lambda: first)
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "outputs"))
    monkeypatch.setenv("BENCHBOOK_MACHINE", "my-machine")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "PATH").symlink_to(write(row := make_row(machine="my-machine", chip="NVIDIA T4")))
    sessions.remember(row["session"])
    for name in ("my-machine", "their-machine", "bucket/one", "zips/one"):
        CHECKS.pack("my-machine", tmp_path / f"{name}.zip")
    app, ran = typer.main.get_command(cli.app), set()
    for name, *arguments in sorted(command_lines()):
        if name in LONG and arguments:
            app.commands[name].make_context(name, arguments)
            continue
        if not arguments and name != "machine":  # a page names the command alone
            arguments = ["--help"]
        found = [
            path
            for word in arguments
            for path in (sorted(tmp_path.glob(word)) if "*" in word else [word])
        ]
        status, said = command(name, *found)
        assert status == 0, (name, found, said)
        ran.add(name)
    assert ran >= app.commands.keys() - LONG - {"chips"}, ran


def test_the_readme_lists_every_notebook_and_profile():
    listed = re.findall(
        r"^\| \[`(\d\d_\w+)`\]\(outputs/examples/\1.ipynb\) \|", read("README.md"), re.MULTILINE
    )
    assert listed == [path.stem for path in layout.notebooks().values()]
    for path in (layout.root() / "notebooks" / "profiles").glob("*.yaml"):
        assert f"`{path.stem}`" in read("README.md")


@pytest.mark.parametrize("name", ["pairs.svg", "pairs-dark.svg"])
def test_the_readmes_picture_shows_the_pairs_of_its_table(name):
    assert f".github/{name}" in read("README.md")
    drawn = re.findall(r">([^<>\n]+)</text>", read(f".github/{name}"))
    for chip, over, said in estimates.asked().itertuples(index=False):
        place = drawn.index(f"{chip} over {over}".replace("NVIDIA ", ""))
        assert drawn[place + 1] == said.partition(" (")[0], "make derived"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_or_a_heading(page):
    headings = {
        re.sub(r"[^a-z0-9]+", "-", line.lower())
        for line in re.findall(r"^#+ (.*)", read(page), re.MULTILINE)
    }
    folder = (layout.root() / page).parent
    for target in re.findall(r"\]\((?!https://)([^)]+)\)", read(page)):
        found = target[1:] in headings if target.startswith("#") else (folder / target).exists()
        assert found, target


def test_the_example_of_plain_papermill_names_parameters_that_exist():
    example = re.search(
        r"papermill notebooks/\d\d_(\w+)\.ipynb out\.ipynb -p (\w+)", read("README.md")
    )
    study, parameter = example.groups()
    assert parameter in profiles.declared(study)


@pytest.mark.parametrize(
    "name", ["squeezenet1_0", "nanogpt_char_small", "simclr_resnet18"]
)  # one of each source
def test_activations_on_record_are_those_that_the_script_counts(name):
    counted = runpy.run_path(str(layout.root() / "benchmarks" / "fit_memory.py"))[
        "activation_bytes"
    ](name)
    assert counted == networks.table().loc[name, "activation_bytes"]


def test_version_and_changelog_agree():
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert str(yaml.safe_load(read("CITATION.cff"))["version"]) == version
    assert re.search(r"^## .*?(\d+\.\d+\.\d+)", read("CHANGELOG.md"), re.MULTILINE)[1] == version


@pytest.mark.parametrize("path", sorted(HIDDEN.rglob("*.yml")), ids=lambda path: path.stem)
def test_workflows_and_templates_are_yaml_with_what_they_must_have(path):
    content = yaml.safe_load(path.read_text())
    needed = {"workflows": {"name", "jobs"}, "ISSUE_TEMPLATE": {"name", "description", "body"}}
    assert needed.get(path.parent.name, {"version", "updates"}) <= set(content)
    for job in content.get("jobs", {}).values():
        assert "write" not in job["permissions"].values() or not any(
            "run" in step for step in job["steps"]
        )
        assert all(
            re.search(r"@[0-9a-f]{40}$", step["uses"]) for step in job["steps"] if "uses" in step
        )


ALLOWED = ("cp run-1.csv run-2.csv", "echo {} > run-1.json")
# The files of the first line, merged, would end other people's studies.
REFUSED = """
echo 1 > done; echo 1 > run-1.running; echo 1 > .session; echo 1 > x.csv.py; echo 1 > ../run-1.csv
echo 3 >> run-1.csv; git mv run-1.csv run-2.csv; git rm -q run-1.csv; ln -s /etc/passwd run-2.csv
mkdir a && echo 1 > a/run-1.csv; echo 1 > 'run 1.csv'; echo 1 > ré.csv
"""


@pytest.mark.parametrize("change", [*ALLOWED, *re.split("; |\n", REFUSED.strip())])
def test_a_pull_request_may_add_rows_and_not_change_them(tmp_path, change):
    steps = yaml.safe_load((HIDDEN / "workflows" / "rows.yml").read_text())["jobs"]["validate"][
        "steps"
    ]
    (check,) = (step["run"] for step in steps if "proposed" in step.get("working-directory", ""))
    folder = tmp_path / "outputs" / "runs" / "desk" / "mnist_speedup" / "reference-cpu"
    folder.mkdir(parents=True)
    commit = "git add -A && git -c user.name=a -c user.email=a commit -qm rows"
    script = (
        f"git init -q . && cd {folder} && echo 1 > run-1.csv && {commit} && {change} && {commit}"
    )
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True)
    checked = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", check], cwd=tmp_path, capture_output=True, text=True
    )
    assert (checked.returncode == 0) == (change in ALLOWED), checked.stdout + checked.stderr


def test_the_table_for_an_analysis_of_ones_own_is_as_documented(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(COMMITTED.parent.parent))
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", read("docs/data.md"), re.DOTALL)[1], names)
    shown = capsys.readouterr().out
    assert "mnist_speedup" in shown
    assert "2026-11-" in shown
    cells = re.findall(r"^\| ([a-z_, ]+) \|", read("docs/data.md"), re.MULTILINE)[1:]
    assert sorted(", ".join(cells).split(", ")) == sorted(names["points"].columns)
    machine = names["points"]["machine"].iloc[0]
    own = benchbook.results(COMMITTED.parent, machine)
    assert set(own["machine"]) == {machine}
    assert set(own["verdict"].dropna().map(type)) == {str}
    with pytest.raises(ValueError, match=f"no machine 'mine'.*{machine}"):
        benchbook.results(COMMITTED.parent, "mine")
    with pytest.raises(ValueError, match="is not a folder"):
        benchbook.results(tmp_path / "none")


def test_troubleshooting_has_the_words_of_each_doubt():
    page = read("docs/troubleshooting.md")
    for code, (_, text, _) in verdicts.REASONS.items():
        words = max(re.split(r"\{.*?\}", text), key=len).strip(" +%:(,.")
        assert words in page, f"{code}: {words!r}"
