"""Sharing rows: what is shown and sent, by real git, and a stand-in for `gh` that has
repositories on this disk."""

import json
import os
import subprocess
import sys
from email.message import Message

import pytest

from benchbook.machine import identity, layout
from made.rows import make_row, write

REPOSITORY, HOME = "project/benchbook", "me/benchbook"
CSV = "outputs/runs/desk/mnist_speedup/reference-cpu/run-{}.csv"
# Answers like gh 2.23; its folder has a bare repository for each on GitHub, and the state in JSON.
GH = """#!{python} -I
import json, pathlib, subprocess, sys
here, words = pathlib.Path({here!r}), sys.argv[1:]
state = json.loads((here / "state.json").read_text())
def git(*words):
    subprocess.run(["git", *map(str, words)], check=True)
def clone(name, flags):
    git("clone", *flags[flags.index("--") + 1 :], f"file://{{here / name}}.git", name.partition("/")[2])
if state["fault"] and words[0] != "auth":
    sys.exit(f"a warning\\n{{state['fault']}}")
match words[:2]:
    case ["auth", "token"]:
        print(state["token"])
    case ["api", "user"]:
        print("me")
    case ["repo", "view"]:
        print(json.dumps({{"nameWithOwner": words[2], "viewerPermission": state["permission"],
                           "defaultBranchRef": {{"name": "main"}}}}))
    case ["repo", "clone"]:
        clone(words[2], words)
    case ["repo", "fork"]:
        if not (here / "me" / "benchbook.git").exists():
            git("clone", "--quiet", "--bare", here / f"{{words[2]}}.git", here / "me" / "benchbook.git")
        clone({home!r}, words)
        git("-C", "benchbook", "remote", "add", "upstream", here / f"{{words[2]}}.git")
        git("-C", "benchbook", "fetch", "--quiet", "upstream")
    case ["pr", "list"]:
        for each in state["pulls"]:
            if each["open"] and each["head"].endswith(words[words.index("--head") + 1]):
                if f'== "{{each["owner"]}}"' in words[-1]:
                    print(each["url"])
    case ["pr", "create"]:
        options = dict(zip(words[2::2], words[3::2]))
        owner = options["--head"].rpartition(":")[0] or "project"
        url = f"https://pull/{{len(state['pulls']) + 1}}"
        pull = {{"open": True, "head": options["--head"], "owner": owner, "url": url, "options": options}}
        state["pulls"].append(pull)
        (here / "state.json").write_text(json.dumps(state))
        print(url)
"""


class World:
    """GitHub on this disk."""

    def __init__(self, folder) -> None:
        self.folder = folder
        folder.mkdir()
        self.write(token="secret", permission="READ", fault="", pulls=[])
        (folder / "gh").write_text(GH.format(python=sys.executable, here=str(folder), home=HOME))
        (folder / "gh").chmod(0o755)
        script = """git init --quiet --bare -b main project/benchbook.git
            git -C project/benchbook.git config uploadpack.allowFilter true
            git clone --quiet project/benchbook.git first 2>/dev/null && cd first
            echo x > README.md && mkdir lib && echo y > lib/a.py && git add -A
            git -c user.name=a -c user.email=a commit --quiet -m first && git push --quiet origin HEAD:main"""
        subprocess.run(["sh", "-ec", script], cwd=folder, check=True)

    def write(self, **changes) -> None:
        path = self.folder / "state.json"
        state = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(state | changes))

    @property
    def pulls(self) -> list[dict]:
        return json.loads((self.folder / "state.json").read_text())["pulls"]

    def git(self, home: str, *words: str) -> list[str]:
        command = ["git", "-C", str(self.folder / f"{home}.git"), *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout.splitlines()

    def sent(self, home: str = HOME) -> set[str]:
        """Return the files that the machine's branch changes."""
        return {*self.git(home, "diff", "--name-only", "main", "rows-desk")}


@pytest.fixture
def world(outputs, monkeypatch, tmp_path_factory):
    """Let the stand-in be `gh`, and write one machine's rows."""
    world = World(tmp_path_factory.mktemp("world") / "github")
    monkeypatch.setenv("PATH", f"{world.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("BENCHBOOK_REPOSITORY", REPOSITORY)
    write(make_row())
    return world


@pytest.fixture
def typed(command):
    """Return a function to what `benchbook share` prints."""

    def send(*words: str, answer: str = "y\n", status: int = 0) -> str:
        ended, said = command("share", "--machine", "desk", *words, answer=answer)
        assert ended == status, said
        return said

    return send


def test_rows_are_shown_and_sent_as_a_pull_request_of_a_fork(typed, world):
    printed = typed()
    assert CSV.format(1) in printed
    assert printed.endswith("Pull request: https://pull/1\n")
    assert world.sent() == {CSV.format(1)}
    text = (layout.outputs() / CSV.format(1).removeprefix("outputs/")).read_text()
    assert world.git(HOME, "show", f"rows-desk:{CSV.format(1)}") == text.splitlines()
    author = "me <me@users.noreply.github.com>"  # and not that of git's settings
    assert world.git(HOME, "log", "-1", "--format=%an <%ae>%n%cn <%ce>%n%s", "rows-desk") == [
        author,
        author,
        "Add rows of desk",
    ]
    options = world.pulls[0]["options"]
    assert [options[f"--{name}"] for name in ("repo", "base", "head")] == [
        REPOSITORY,
        "main",
        "me:rows-desk",
    ]


def test_a_second_call_updates_the_open_request_and_merged_files_are_not_sent_again(typed, world):
    typed()
    write(make_row(run_id="run-2", seconds=4.0, samples_per_second=160.0))
    assert typed().endswith("Pull request: https://pull/1\n")
    assert world.sent() == {CSV.format(1), CSV.format(2)}
    assert len(world.git(HOME, "rev-list", "main..rows-desk")) == 1
    world.write(pulls=[world.pulls[0] | {"open": False}])
    assert typed().endswith("Pull request: https://pull/2\n")
    world.git(REPOSITORY, "fetch", "--quiet", f"{world.folder / HOME}.git", "rows-desk:main")
    assert typed().endswith(f"{REPOSITORY} already has all of these files.\n")


def test_who_may_write_needs_no_fork(typed, world):
    world.write(permission="WRITE")
    typed()
    assert world.sent(REPOSITORY) == {CSV.format(1)}
    assert not (world.folder / "me").exists()


def test_a_dry_run_shows_every_text_and_sends_nothing(typed, world):
    columns = {
        "run_id": "run-2",
        "seconds": 4.0,
        "samples_per_second": 160.0,
        "study": "mnist_speedup",
        "point": "p",
    }
    write(
        make_row(
            **columns,
            settings={"network": "net.py:secret_net"},
            model="secret_model",
            framework_version="2.10.0",
        )
    )
    manifest = {
        "own_files": {"network": {"file": "secret_file.py"}},
        "trials": [{"outcome": "secret outcome"}],
    }
    manifest |= {
        "environment": {"packages": {"secret-package": "1.0", "torch": "2.10.0"}},
        "note": ["secret note"],
    }
    manifest["pictures"] = "UEsDBC"  # a long text of bytes
    (layout.point("desk", "mnist_speedup", "p") / "run-2.json").write_text(json.dumps(manifest))
    printed = typed("--dry-run")
    assert CSV.format(1) in printed
    secrets = (
        "net.py:secret_net",
        "secret_model",
        "secret_file.py",
        "secret outcome",
        "secret-package 1.0",
    )
    assert all(text in printed for text in (*secrets, "manifest.note: secret note"))
    assert manifest["pictures"] not in printed
    assert world.pulls == []


def test_a_no_sends_nothing(typed, world):
    assert typed(answer="n\n").endswith("Nothing was sent.\n")
    assert "the question was not answered" in typed(answer="", status=1)
    assert world.pulls == []


def test_a_refusal_is_one_line_and_the_zip_is_kept(typed, world, tmp_path):
    world.write(fault="HTTP 403: Resource not accessible")
    line = typed(status=1).splitlines()[-1]
    assert "Not sent: gh: HTTP 403: Resource not accessible. " in line
    assert "issues/new?template=results.yml" in line
    assert (tmp_path / "desk.zip").exists()


@pytest.mark.parametrize("state", ["missing", "not logged in"])
def test_without_gh_the_address_of_an_issue_is_printed(typed, world, monkeypatch, state):
    if state == "missing":
        monkeypatch.setenv("PATH", str(world.folder / "first"))
    else:
        world.write(token="")
    line = typed().splitlines()[-1]
    assert "attach " in line
    assert f"https://github.com/{REPOSITORY}/issues/new?template=results.yml" in line
    assert world.pulls == []


@pytest.mark.parametrize(
    ("named", "address", "expected"),
    [
        ("", REPOSITORY, REPOSITORY),
        (REPOSITORY, "a/b", REPOSITORY),
        ("", "_owner_/benchbook", ""),
        ("x/y/z", "a/b", ""),
    ],
)
def test_the_repository_is_the_packages_own_or_an_error_says_what_helps(
    typed, world, monkeypatch, named, address, expected
):
    package = Message()
    package["Project-URL"] = f"Repository, https://github.com/{address}"
    monkeypatch.setattr(identity.metadata, "metadata", lambda name: package)
    monkeypatch.setenv("BENCHBOOK_REPOSITORY", named)
    if expected:
        assert f"for {expected}.\n" in typed("--dry-run")
    else:
        assert "allowed: BENCHBOOK_REPOSITORY=owner/name" in typed(status=2)
