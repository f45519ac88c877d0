"""Sharing rows: what is shown and sent, to a stand-in of GitHub's API that answers as its documentation says."""

import http.server
import json
import re
import threading
import time
from urllib.parse import parse_qs, urlsplit

import pytest

from benchbook.commands import share
from benchbook.machine import layout
from rows import make_row, write

REPOSITORY, HOME = "project/benchbook", "me/benchbook"
CSV = "outputs/runs/desk/mnist_speedup/reference-cpu/run-{}.csv"


class Stand(http.server.BaseHTTPRequestHandler):
    """Repositories with branches; a commit is its tree's files, a tree the texts by path.

    Source: https://docs.github.com/en/rest (repos, git, pulls)
    """

    def log_message(self, *words) -> None:
        pass

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline()
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        world = self.server.world
        world["asked"].append(f"{self.command} {self.path}")
        status, answer, headers = world["fault"] or (*self.answer(urlsplit(self.path), body), {})
        if self.headers["Authorization"] != "Bearer secret":
            status, answer = 401, {"message": "Bad credentials"}
        text = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Length": len(text), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(text)

    def answer(self, address, body):  # noqa: C901 (a table of addresses)
        world, (_, owner, name, *rest) = self.server.world, address.path.strip("/").split("/")
        repository, missing = f"{owner}/{name}", (404, {"message": "Not Found"})
        branches = world["branches"].setdefault(repository, {})
        match self.command, *rest:
            case ("GET",):
                whole = {"full_name": repository, "default_branch": "main", "fork": repository == HOME}
                whole |= {"parent": {"full_name": REPOSITORY}, "permissions": {"push": repository in world["mine"]}}
                return (200, whole) if repository in (REPOSITORY, HOME) else missing
            case "POST", "forks":
                world["branches"][HOME] = {"main": "c0"} | world["branches"].get(HOME, {})
                return 202, {"full_name": HOME}
            case "GET", "git", "ref", "heads", branch:
                world["slow"] -= 1
                is_there = branch in branches and world["slow"] < 0
                return (200, {"object": {"sha": branches[branch]}}) if is_there else missing
            case "GET", "git", "commits", commit:
                return 200, {"tree": {"sha": world["commits"][commit]}}
            case "POST", "git", "trees":
                files = world["trees"][body["base_tree"]] | {each["path"]: each["content"] for each in body["tree"]}
                sha = next((key for key, tree in world["trees"].items() if tree == files), f"t{len(world['trees'])}")
                world["trees"][sha] = files
                return 201, {"sha": sha}
            case "POST", "git", "commits":
                sha = f"c{len(world['commits'])}"
                world["commits"][sha] = body["tree"]
                world["parents"][sha] = body["parents"]
                return 201, {"sha": sha}
            case "POST", "git", "refs":
                branch = body["ref"].removeprefix("refs/heads/")
                if branch in branches:
                    return 422, {"message": "Reference already exists"}
                branches[branch] = body["sha"]
                return 201, {"ref": body["ref"]}
            case "PATCH", "git", "refs", "heads", branch:
                if not body.get("force") and branches[branch] not in world["parents"][body["sha"]]:
                    return 422, {"message": "Update is not a fast forward"}
                branches[branch] = body["sha"]
                return 200, {}
            case "GET", "pulls":
                asked = {name: values[0] for name, values in parse_qs(address.query).items()}
                return 200, [each for each in world["pulls"] if each["head"] == asked["head"] and each["open"]]
            case "POST", "pulls":
                number = len(world["pulls"]) + 1
                made = {"head": body["head"], "base": body["base"], "open": True, "html_url": f"https://pull/{number}"}
                world["pulls"].append(made)
                return 201, made
        return missing


@pytest.fixture
def world(outputs, monkeypatch):
    """Serve the stand-in, with a token for it and one machine's rows; return what it holds."""
    world = {"asked": [], "fault": None, "mine": [], "slow": 0, "pulls": [], "parents": {}}
    world |= {"branches": {REPOSITORY: {"main": "c0"}}, "commits": {"c0": "t0"}, "trees": {"t0": {"README.md": "x"}}}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stand)
    server.world = world
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("GITHUB_API_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    monkeypatch.setenv("BENCHBOOK_REPOSITORY", REPOSITORY)
    monkeypatch.setattr(share, "FORK_POLL_SECONDS", 0.01)
    write(make_row())
    yield world
    server.shutdown()
    server.server_close()


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
    return {*world["trees"][world["commits"][world["branches"][home]["rows-desk"]]]} - {"README.md"}


def test_rows_are_shown_and_sent_as_a_pull_request_of_a_fork(typed, world):
    world["slow"] = 2  # a fork takes its time
    printed = typed()
    assert CSV.format(1) in printed
    assert printed.endswith("Pull request: https://pull/1\n")
    assert sent(world) == {CSV.format(1)}
    assert (
        world["trees"]["t1"][CSV.format(1)] == (layout.outputs() / CSV.format(1).removeprefix("outputs/")).read_text()
    )
    assert (world["pulls"][0]["head"], world["pulls"][0]["base"]) == ("me:rows-desk", "main")


def test_a_second_call_adds_to_the_open_request_and_a_third_has_nothing_new(typed, world):
    typed()
    write(make_row(run_id="run-2", seconds=4.0, samples_per_second=160.0))
    assert typed().endswith("Added to the open pull request: https://pull/1\n")
    assert sent(world) == {CSV.format(1), CSV.format(2)}
    assert world["parents"] == {"c1": ["c0"], "c2": ["c1"]}
    assert "https://pull/1 has all of them already" in typed()
    assert len(world["pulls"]) == 1


def test_a_branch_of_a_closed_request_is_used_again(typed, world):
    typed()
    world["pulls"][0]["open"] = False
    write(make_row(run_id="run-2", seconds=4.0, samples_per_second=160.0))
    assert typed().endswith("Pull request: https://pull/2\n")
    assert world["parents"]["c2"] == ["c0"]


def test_who_may_write_needs_no_fork_and_a_fork_hands_on_to_its_origin(typed, world, monkeypatch):
    world["mine"] = [REPOSITORY, HOME]
    monkeypatch.setenv("BENCHBOOK_REPOSITORY", HOME)
    typed()
    assert sent(world, REPOSITORY) == {CSV.format(1)}
    assert not any("forks" in line for line in world["asked"])


def test_a_dry_run_and_a_no_send_nothing_and_the_zip_can_be_sent_later(typed, world, tmp_path):
    assert CSV.format(1) in typed("--dry-run")
    assert "sends them later" in typed(answer="n\n")
    assert world["asked"] == []
    (tmp_path / "desk.zip").rename(tmp_path / "kept.zip")
    (tmp_path / "runs").rename(tmp_path / "gone")
    assert typed(str(tmp_path / "kept.zip"), "--yes", answer="").endswith("Pull request: https://pull/1\n")


LIMIT = {"x-ratelimit-remaining": 0, "x-ratelimit-reset": int(time.time()) + 600}
FAULTS = {
    "an unknown token": ((401, {"message": "Bad credentials"}, {}), "does not know this token"),
    "the limit": (
        (403, {"message": "API rate limit exceeded"}, LIMIT),
        r"limit of requests is reached until \d\d:\d\d",
    ),
    "a token of few rights": (
        (403, {"message": "Resource not accessible"}, {}),
        "lacks the permission.*Resource not acc",
    ),
    "no repository": ((404, {"message": "Not Found"}, {}), "repository does not exist"),
    "unprocessable": ((422, {"message": "Validation Failed", "errors": [{"code": "custom"}]}, {}), "Failed; custom"),
    "no JSON": ((200, None, {"Content-Length": 0}), "has no|no answer"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_refusal_is_one_line_and_the_zip_is_kept(typed, world, tmp_path, name):
    world["fault"], message = FAULTS[name]
    printed = typed(status=1)
    assert re.search(message, printed.splitlines()[-1])
    assert "issues/new?template=results.yml" in printed
    assert (tmp_path / "desk.zip").exists()


def test_without_a_network_the_zip_is_kept(typed, world, monkeypatch):
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9")
    assert "Not sent: no answer from http://127.0.0.1:9" in typed(status=1)


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
    assert bool(world["asked"]) == bool(gh)


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
