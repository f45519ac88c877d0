"""The command `benchbook share`: send a machine's rows as a pull request on GitHub."""

import json
import os
import re
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated
from urllib.error import HTTPError
from urllib.parse import urlencode

import typer

from benchbook.commands.output import say, short
from benchbook.machine import layout
from benchbook.machine.identity import identify
from benchbook.machine.processes import output
from benchbook.rows import packing

API, SITE = "https://api.github.com", "https://github.com"
ANSWER_SECONDS = 60.0
FORK_SECONDS, FORK_POLL_SECONDS = 60.0, 2.0  # GitHub answers before the fork is ready
NO_TOKEN = "neither GITHUB_TOKEN nor GH_TOKEN is set, and `gh auth token` has none (`gh auth login` gets one)"
NO_REPOSITORY = "no GitHub repository is known; allowed: BENCHBOOK_REPOSITORY=owner/name, or a checkout from GitHub"


def share(
    archive: Annotated[Path | None, typer.Argument(help="a zip made by `benchbook pack`; default: a new one")] = None,
    machine: Annotated[str, typer.Option(help="name of the machine; empty: made from chip and memory")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list the files and send nothing")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask before sending")] = False,
) -> None:
    """List a machine's files, ask, and send them as a pull request on GitHub.

    A second call adds to the request while it is open. Without a token, the command prints where to attach the zip.
    """
    if archive is None:
        archive, rows = packing.pack(identify(machine).name, None, say)
        contents = packing.read_zip(archive)
    else:
        contents = packing.read_zip(archive)
        rows, _ = packing.read_contents(contents, say)
    name, repository = rows["machine"].iloc[0], _repository()
    for file, content in contents.items():
        say(f"  outputs/runs/{file} ({len(content):,} bytes)")
    what = f"{len(rows)} rows of {rows['run_id'].nunique()} runs of {name}"
    say(f"{what}: {len(contents)} files, in {short(archive)}, for {repository or 'no repository yet'}.")
    if dry_run:
        say("Nothing was sent." if repository else f"Nothing was sent; {NO_REPOSITORY}.")
        return
    if not repository:
        raise ValueError(NO_REPOSITORY)
    issue = {"template": "results.yml", "title": f"Rows of {name}", "notes": what}
    attach = f"attach {short(archive)} to an issue: {SITE}/{repository}/issues/new?{urlencode(issue)}"
    named = (os.environ.get(variable, "") for variable in ("GITHUB_TOKEN", "GH_TOKEN"))
    if not (token := next(filter(None, named), "") or output("gh", "auth", "token")):
        say(f"No pull request: {NO_TOKEN}. Instead, {attach}")
        return
    if not (yes or typer.confirm("Send them, to be published under the project's licence?")):
        say(f"Nothing was sent. `benchbook share {short(archive)}` sends them later.")
        return
    try:
        say(send(partial(ask, token), repository, name, contents, what))
    except (OSError, json.JSONDecodeError) as error:
        say(f"Not sent: {_reason(error)}. `benchbook share {short(archive)}` sends them later; or {attach}")
        raise typer.Exit(1) from None


def ask(token: str, method: str, path: str, **body):
    """Return the JSON that GitHub's REST API answers to a request; GITHUB_API_URL names another server.

    Source: https://docs.github.com/en/rest

    Raises:
        HTTPError: GitHub refused; the error's note is method and path.
        OSError, JSONDecodeError: there was no answer, or it is not JSON.
    """
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
    headers |= {"X-GitHub-Api-Version": "2022-11-28", "User-Agent": "benchbook", "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"{_server()}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return json.load(answer)
    except HTTPError as error:
        error.add_note(f"{method} {path}")
        raise


def _server() -> str:
    return os.environ.get("GITHUB_API_URL", API)


def send(ask: Callable, repository: str, machine: str, contents: dict[str, bytes], what: str) -> str:
    """Commit a zip's files to the branch `rows-<machine>` and open a pull request; without write access, use a fork.

    Args:
        ask: the function above, with the user's token.
        repository: owner/name; if it is a fork, its parent gets the request.
        machine: names the branch.
        contents: files by their names below outputs/runs.
        what: the request's text.

    Returns:
        A sentence with the result and the request's address.

    Raises:
        HTTPError, OSError, JSONDecodeError: see `ask`.
    """
    target = ask("GET", f"/repos/{repository}")
    if target.get("fork"):
        target = ask("GET", f"/repos/{target['parent']['full_name']}")
    to, base, branch = target["full_name"], target["default_branch"], f"rows-{machine}"
    may_write = target.get("permissions", {}).get("push")
    home = to if may_write else ask("POST", f"/repos/{to}/forks")["full_name"]
    head = f"{home.partition('/')[0]}:{branch}"
    opened = ask("GET", f"/repos/{to}/pulls?{urlencode({'head': head, 'state': 'open'})}")
    parent = _commit_of(ask, home, branch if opened else base)
    before = ask("GET", f"/repos/{home}/git/commits/{parent}")["tree"]["sha"]
    blob = {"mode": "100644", "type": "blob"}
    files = [blob | {"path": f"outputs/runs/{name}", "content": text.decode()} for name, text in contents.items()]
    tree = ask("POST", f"/repos/{home}/git/trees", base_tree=before, tree=files)["sha"]
    if tree == before:
        return f"{opened[0]['html_url'] if opened else to} already has all of these files."
    title = f"Add rows of {machine}"
    commit = ask("POST", f"/repos/{home}/git/commits", message=title, tree=tree, parents=[parent])["sha"]
    reference = f"/repos/{home}/git/refs"
    if opened:
        ask("PATCH", f"{reference}/heads/{branch}", sha=commit)
        return f"Added to the open pull request: {opened[0]['html_url']}"
    try:
        ask("POST", reference, ref=f"refs/heads/{branch}", sha=commit)
    except HTTPError as error:
        if error.code != 422:
            raise
        ask("PATCH", f"{reference}/heads/{branch}", sha=commit, force=True)  # the branch of a closed request
    created = ask("POST", f"/repos/{to}/pulls", title=title, head=head, base=base, body=f"{what}.")
    return f"Pull request: {created['html_url']}"


def _commit_of(ask: Callable, home: str, branch: str) -> str:
    """Return the commit of a branch; wait until a new fork has it."""
    deadline = time.monotonic() + FORK_SECONDS
    while True:
        try:
            return ask("GET", f"/repos/{home}/git/ref/heads/{branch}")["object"]["sha"]
        except HTTPError as error:
            if error.code not in (404, 409) or time.monotonic() > deadline:
                raise
        time.sleep(FORK_POLL_SECONDS)


def _reason(error: OSError | json.JSONDecodeError) -> str:
    """Return the meaning of an error of `ask` for the user."""
    if not isinstance(error, HTTPError):
        return f"no answer from {_server()} ({getattr(error, 'reason', error)})"
    try:
        answer = json.load(error)
        errors = [each.get("message") or each.get("code", "") for each in answer.get("errors", [])]
        text = "; ".join(filter(None, [answer["message"], *errors]))
    except (ValueError, KeyError, TypeError, AttributeError):  # the answer of a proxy, for example
        text = str(error.reason)
    reset = error.headers.get("x-ratelimit-reset", "")
    if error.code in (403, 429) and error.headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
        return f"GitHub's request limit is reached until {time.strftime('%H:%M', time.gmtime(int(reset)))} UTC"
    meanings = {
        401: "GitHub does not know this token; `gh auth login` or another GITHUB_TOKEN helps",
        403: "this token lacks the permission; allowed: a token that may write contents and pull requests",
        404: "the repository does not exist, or this token may not read it",
    }
    return f"{meanings.get(error.code, 'GitHub refused')} ({error.code} for {error.__notes__[0]}: {text})"


def _repository() -> str:
    """Return owner/name from BENCHBOOK_REPOSITORY, from the checkout's origin or from pip's record, else ''."""
    if named := os.environ.get("BENCHBOOK_REPOSITORY", ""):
        return named if re.fullmatch(r"[\w.-]+/[\w.-]+", named) else ""
    if folder := layout.checkout():
        address = output("git", "-C", str(folder), "remote", "get-url", "origin")
    else:
        address = json.loads(metadata.distribution("benchbook").read_text("direct_url.json") or "{}").get("url", "")
    found = re.search(r"github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?$", address)
    return found[1] if found else ""
