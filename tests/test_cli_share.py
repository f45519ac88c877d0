"""Sharing rows: what is shown and sent, to a stand-in of GitHub's API that answers as its documentation says."""

import io
import json
import re
import urllib.request
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlsplit

import pytest

from benchbook.commands import share
from benchbook.machine import layout
from rows import make_row, write

API, REPOSITORY, HOME = "https://github.example", "project/benchbook", "me/benchbook"
CSV = "outputs/runs/desk/mnist_speedup/reference-cpu/run-{}.csv"


class Stand:
    """Repositories with branches; a commit is its tree's files, a tree the texts by path.

    Source: https://docs.github.com/en/rest (repos, git, pulls)
    """

    def __init__(self) -> None:
        self.asked, self.fault, self.mine, self.slow, self.pulls, self.parents = [], None, [], 0, [], {}
        self.branches, self.commits, self.trees = {REPOSITORY: {"main": "c0"}}, {"c0": "t0"}, {"t0": {"README.md": "x"}}

    def urlopen(self, request, timeout) -> io.BytesIO:
        assert request.full_url == f"{API}{request.selector}"
        assert request.get_header("Authorization") == "Bearer secret"
        self.asked.append(f"{request.method} {request.selector}")
        if isinstance(self.fault, OSError):
            raise self.fault
        status, answer, headers = self.fault or (*self.answer(request, json.loads(request.data or "{}")), {})
        text = io.BytesIO(json.dumps(answer).encode() if answer is not None else b"")
        if status < 400:
            return text
        raise HTTPError(request.full_url, status, "refused", headers, text)

    def answer(self, request, body):  # noqa: C901 (a table of addresses)
        address = urlsplit(request.selector)
        _, owner, name, *rest = address.path.strip("/").split("/")
        repository, missing = f"{owner}/{name}", (404, {"message": "Not Found"})
        branches = self.branches.setdefault(repository, {})
        match request.method, *rest:
            case ("GET",):
                whole = {"full_name": repository, "default_branch": "main", "fork": repository == HOME}
                whole |= {"parent": {"full_name": REPOSITORY}, "permissions": {"push": repository in self.mine}}
                return (200, whole) if repository in (REPOSITORY, HOME) else missing
            case "POST", "forks":
                self.branches[HOME] = {"main": "c0"} | self.branches.get(HOME, {})
                return 202, {"full_name": HOME}
            case "GET", "git", "ref", "heads", branch:
                self.slow -= 1
                is_there = branch in branches and self.slow < 0
                return (200, {"object": {"sha": branches[branch]}}) if is_there else missing
            case "GET", "git", "commits", commit:
                return 200, {"tree": {"sha": self.commits[commit]}}
            case "POST", "git", "trees":
                files = self.trees[body["base_tree"]] | {each["path"]: each["content"] for each in body["tree"]}
                sha = next((key for key, tree in self.trees.items() if tree == files), f"t{len(self.trees)}")
                self.trees[sha] = files
                return 201, {"sha": sha}
            case "POST", "git", "commits":
                sha = f"c{len(self.commits)}"
                self.commits[sha] = body["tree"]
                self.parents[sha] = body["parents"]
                return 201, {"sha": sha}
            case "POST", "git", "refs":
                branch = body["ref"].removeprefix("refs/heads/")
                if branch in branches:
                    return 422, {"message": "Reference already exists"}
                branches[branch] = body["sha"]
                return 201, {"ref": body["ref"]}
            case "PATCH", "git", "refs", "heads", branch:
                if not body.get("force") and branches[branch] not in self.parents[body["sha"]]:
                    return 422, {"message": "Update is not a fast forward"}
                branches[branch] = body["sha"]
                return 200, {}
            case "GET", "pulls":
                asked = {name: values[0] for name, values in parse_qs(address.query).items()}
                return 200, [each for each in self.pulls if each["head"] == asked["head"] and each["open"]]
            case "POST", "pulls":
                number = len(self.pulls) + 1
                made = {"head": body["head"], "base": body["base"], "open": True, "html_url": f"https://pull/{number}"}
                self.pulls.append(made)
                return 201, made
        return missing


@pytest.fixture
def world(outputs, monkeypatch):
    """Let the stand-in answer, with a token for it and one machine's rows; return what it holds."""
    world = Stand()
    monkeypatch.setattr(urllib.request, "urlopen", world.urlopen)
    monkeypatch.setenv("GITHUB_API_URL", API)
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    monkeypatch.setenv("BENCHBOOK_REPOSITORY", REPOSITORY)
    monkeypatch.setattr(share, "FORK_POLL_SECONDS", 0.01)
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


def sent(world, home: str = HOME) -> set[str]:
    """Return the files that the machine's branch has beyond the main branch."""
    return {*world.trees[world.commits[world.branches[home]["rows-desk"]]]} - {"README.md"}


def test_rows_are_shown_and_sent_as_a_pull_request_of_a_fork(typed, world):
    world.slow = 2  # a fork takes its time
    printed = typed()
    assert CSV.format(1) in printed
    assert printed.endswith("Pull request: https://pull/1\n")
    assert sent(world) == {CSV.format(1)}
    text = (layout.outputs() / CSV.format(1).removeprefix("outputs/")).read_text()
    assert world.trees["t1"][CSV.format(1)] == text
    assert (world.pulls[0]["head"], world.pulls[0]["base"]) == ("me:rows-desk", "main")


def test_a_second_call_adds_to_the_open_request_a_third_has_nothing_new_and_a_closed_ones_branch_is_used_again(
    typed, world
):
    typed()
    write(make_row(run_id="run-2", seconds=4.0, samples_per_second=160.0))
    assert typed().endswith("Added to the open pull request: https://pull/1\n")
    assert sent(world) == {CSV.format(1), CSV.format(2)}
    assert "https://pull/1 already has all of these files" in typed()
    assert len(world.pulls) == 1
    world.pulls[0]["open"] = False
    assert typed().endswith("Pull request: https://pull/2\n")
    assert world.parents == {"c1": ["c0"], "c2": ["c1"], "c3": ["c0"]}


def test_who_may_write_needs_no_fork_and_a_fork_hands_on_to_its_origin(typed, world, monkeypatch):
    world.mine = [REPOSITORY, HOME]
    monkeypatch.setenv("BENCHBOOK_REPOSITORY", HOME)
    typed()
    assert sent(world, REPOSITORY) == {CSV.format(1)}
    assert not any("forks" in line for line in world.asked)


def test_a_dry_run_and_a_no_send_nothing_and_the_zip_can_be_sent_later(typed, world, tmp_path):
    assert CSV.format(1) in typed("--dry-run")
    assert "sends them later" in typed(answer="n\n")
    assert "the question was not answered" in typed(answer="", status=1)
    assert world.asked == []
    (tmp_path / "desk.zip").rename(tmp_path / "kept.zip")
    (tmp_path / "runs").rename(tmp_path / "gone")
    assert typed(str(tmp_path / "kept.zip"), "--yes", answer="").endswith("Pull request: https://pull/1\n")


LIMIT = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1795000000"}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ((401, {"message": "Bad credentials"}, {}), "does not know this token"),
        ((403, {"message": "API rate limit exceeded"}, LIMIT), r"request limit is reached until \d\d:\d\d"),
        ((403, {"message": "Resource not accessible"}, {}), "lacks the permission.*Resource not acc"),
        ((404, {"message": "Not Found"}, {}), "repository does not exist"),
        ((422, {"message": "Validation Failed", "errors": [{"code": "custom"}]}, {}), "Failed; custom"),
        ((200, None, {}), "Not sent: no answer from https://github.example \\(Expecting value"),
        (URLError("refused"), "Not sent: no answer from https://github.example \\(refused\\)"),
    ],
)
def test_a_refusal_is_one_line_and_the_zip_is_kept(typed, world, tmp_path, fault, message):
    world.fault = fault
    printed = typed(status=1)
    assert re.search(message, printed.splitlines()[-1])
    assert "issues/new?template=results.yml" in printed
    assert (tmp_path / "desk.zip").exists()


@pytest.mark.parametrize(
    ("gh", "expected"), [("", "No pull request: neither GITHUB_TOKEN"), ("secret", "https://pull/1")]
)
def test_gh_lends_its_token_and_without_one_an_issue_is_named(typed, world, tmp_path, monkeypatch, gh, expected):
    monkeypatch.delenv("GITHUB_TOKEN")
    monkeypatch.delenv("GH_TOKEN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if gh:
        (tmp_path / "gh").write_text(f'#!/bin/sh\n[ "$*" = "auth token" ] && echo {gh}\n')
        (tmp_path / "gh").chmod(0o755)
    assert expected in typed()
    assert bool(world.asked) == bool(gh)


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("git@github.com:project/benchbook.git", REPOSITORY),
        ("https://github.com/project/benchbook", REPOSITORY),
        ("https://elsewhere.org/project/benchbook", ""),
    ],
)
def test_the_repository_is_that_of_the_checkout(monkeypatch, origin, expected):
    monkeypatch.delenv("BENCHBOOK_REPOSITORY", raising=False)
    monkeypatch.setattr(share, "output", lambda *command: origin)
    assert share._repository() == expected


def test_an_unknown_repository_is_an_error_that_says_what_helps(typed, world, monkeypatch):
    monkeypatch.setenv("BENCHBOOK_REPOSITORY", "https://github.com/project")
    assert "allowed: BENCHBOOK_REPOSITORY=owner/name" in typed(status=2)
