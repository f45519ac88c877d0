"""The command `benchbook share`: a machine's rows as a pull request on GitHub."""

import json
import os
import re
import time
import urllib.error
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Annotated
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
NO_REPOSITORY = "unknown repository; allowed: BENCHBOOK_REPOSITORY=owner/name, or a checkout whose origin is on GitHub"


class NotSent(RuntimeError):
    """GitHub refused the rows; the message says why and what to do.

    Attributes:
        status: of GitHub's answer; 0: there was none.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


def share(
    archive: Annotated[
        Path | None, typer.Argument(help="a zip made by `benchbook pack`; default: a new one of this machine")
    ] = None,
    machine: Annotated[str, typer.Option(help="name of the machine; empty: made from chip and memory")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list what would be sent and send nothing")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """List a machine's files, ask, and send them as a pull request on GitHub.

    A second call adds to the request while it is open. Without a token the command prints where to attach the zip.
    """
    if archive is None:
        archive, rows = packing.pack(identify(machine).name, None, say)
        contents = packing.read_zip(archive)
    else:
        contents = packing.read_zip(archive)
        rows, _ = packing.checked(contents, say)
    name, repository = rows["machine"].iloc[0], _repository()
    for file, content in contents.items():
        say(f"  outputs/runs/{file} ({len(content):,} bytes)")
    what = f"{len(rows)} rows of {rows['run_id'].nunique()} runs of {name}"
    say(f"{what}: these {len(contents)} files, packed in {short(archive)}, to {repository or 'no repository yet'}.")
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
        say(send(GitHub(token), repository, name, contents, what))
    except NotSent as error:
        say(f"Not sent: {error}. `benchbook share {short(archive)}` sends them later; or {attach}")
        raise typer.Exit(1) from None


class GitHub:
    """GitHub's REST API; GITHUB_API_URL names another server of it.

    Source: https://docs.github.com/en/rest

    Args:
        token: that may write contents and pull requests.
    """

    def __init__(self, token: str) -> None:
        self.token, self.address = token, os.environ.get("GITHUB_API_URL", API)

    def ask(self, method: str, path: str, **body):
        """Return the answer to a request, as JSON has it.

        Raises:
            NotSent: an error, or no answer.
        """
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/vnd.github+json"}
        headers |= {"X-GitHub-Api-Version": "2022-11-28", "User-Agent": "benchbook", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(f"{self.address}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise NotSent(_reason(error, f"{method} {path}"), error.code) from error
        except (OSError, ValueError) as error:
            raise NotSent(f"no answer from {self.address} ({getattr(error, 'reason', error)})") from error


def send(github: GitHub, repository: str, machine: str, contents: dict[str, bytes], what: str) -> str:
    """Commit a pack's files to a branch of the machine's, in a fork where the user may not write; open a pull request.

    Args:
        github: as the user.
        repository: owner/name; of a fork the one that it was made from gets the request.
        machine: names the branch.
        contents: files by their names below outputs/runs.
        what: the request's text.

    Returns:
        What happened, with the request's address.

    Raises:
        NotSent: see `GitHub.ask`.
    """
    target = github.ask("GET", f"/repos/{repository}")
    if target.get("fork"):
        target = github.ask("GET", f"/repos/{target['parent']['full_name']}")
    to, base, branch = target["full_name"], target["default_branch"], f"rows-{machine}"
    may_write = target.get("permissions", {}).get("push")
    home = to if may_write else github.ask("POST", f"/repos/{to}/forks")["full_name"]
    head = f"{home.partition('/')[0]}:{branch}"
    begun = github.ask("GET", f"/repos/{to}/pulls?{urlencode({'head': head, 'state': 'open'})}")
    parent = _commit_of(github, home, branch if begun else base)
    before = github.ask("GET", f"/repos/{home}/git/commits/{parent}")["tree"]["sha"]
    blob = {"mode": "100644", "type": "blob"}
    files = [blob | {"path": f"outputs/runs/{name}", "content": text.decode()} for name, text in contents.items()]
    tree = github.ask("POST", f"/repos/{home}/git/trees", base_tree=before, tree=files)["sha"]
    if tree == before:
        return f"{begun[0]['html_url'] if begun else to} has all of them already."
    title = f"Add rows of {machine}"
    commit = github.ask("POST", f"/repos/{home}/git/commits", message=title, tree=tree, parents=[parent])["sha"]
    reference = f"/repos/{home}/git/refs"
    if begun:
        github.ask("PATCH", f"{reference}/heads/{branch}", sha=commit)
        return f"Added to the open pull request: {begun[0]['html_url']}"
    try:
        github.ask("POST", reference, ref=f"refs/heads/{branch}", sha=commit)
    except NotSent as error:
        if error.status != 422:
            raise
        github.ask("PATCH", f"{reference}/heads/{branch}", sha=commit, force=True)  # left of a request that was closed
    opened = github.ask("POST", f"/repos/{to}/pulls", title=title, head=head, base=base, body=f"{what}.")
    return f"Pull request: {opened['html_url']}"


def _commit_of(github: GitHub, home: str, branch: str) -> str:
    """Return the commit of a branch; wait until a new fork is ready."""
    deadline = time.monotonic() + FORK_SECONDS
    while True:
        try:
            return github.ask("GET", f"/repos/{home}/git/ref/heads/{branch}")["object"]["sha"]
        except NotSent as error:
            if error.status not in (404, 409) or time.monotonic() > deadline:
                raise
        time.sleep(FORK_POLL_SECONDS)


def _reason(error: urllib.error.HTTPError, what: str) -> str:
    """Return the meaning of a GitHub error for the user."""
    try:
        answer = json.load(error)
        said = [answer["message"], *(each.get("message") or each.get("code", "") for each in answer.get("errors", []))]
        text = "; ".join(filter(None, said))
    except (ValueError, KeyError, TypeError, AttributeError):  # of a proxy, say
        text = str(error.reason)
    reset = error.headers.get("x-ratelimit-reset", "")
    if error.code in (403, 429) and error.headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
        return f"GitHub's limit of requests is reached until {time.strftime('%H:%M', time.gmtime(int(reset)))} UTC"
    meanings = {
        401: "GitHub does not know this token; `gh auth login` or another GITHUB_TOKEN helps",
        403: "this token lacks the permission; allowed: a token that may write contents and pull requests",
        404: "the repository does not exist, or this token may not read it",
    }
    return f"{meanings.get(error.code, 'GitHub refused')} ({error.code} for {what}: {text})"


def _repository() -> str:
    """Return owner/name: of BENCHBOOK_REPOSITORY, of the checkout's origin, or of what pip installed; else nothing."""
    if named := os.environ.get("BENCHBOOK_REPOSITORY", ""):
        return named if re.fullmatch(r"[\w.-]+/[\w.-]+", named) else ""
    if folder := layout.checkout():
        address = output("git", "-C", str(folder), "remote", "get-url", "origin")
    else:
        address = json.loads(metadata.distribution("benchbook").read_text("direct_url.json") or "{}").get("url", "")
    found = re.search(r"github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?$", address)
    return found[1] if found else ""
