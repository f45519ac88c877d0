"""The command `benchbook share`: send a machine's rows as a pull request on GitHub, by `gh`,
GitHub's command line."""

import io
import json
import os
import subprocess
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import pandas
import typer

from benchbook.commands.options import PackedName
from benchbook.commands.output import say, short
from benchbook.machine import identity, temporary
from benchbook.machine.processes import output
from benchbook.rows import packing, schema
from benchbook.studies.checks import CHECKS

NO_REPOSITORY = "no GitHub repository is known; allowed: BENCHBOOK_REPOSITORY=owner/name"
NO_GH = "No pull request: `gh` is missing or not logged in (https://cli.github.com, then `gh auth login`)."
NO_TEXTS = ("session", "run_id", "started_at")  # times, and random digits
MAY_WRITE = ("ADMIN", "MAINTAIN", "WRITE")
QUIET = {
    "GH_PROMPT_DISABLED": "1",
    "GIT_TERMINAL_PROMPT": "0",
}  # an error instead of a hidden question


def share(
    machine: PackedName = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show what would be sent, and send nothing")
    ] = False,
) -> None:
    """Print a machine's files and texts, ask, and send them."""
    archive, rows = CHECKS.pack(machine, None, say)
    contents, repository = packing.read(archive), identity.repository()
    name = rows["machine"].iloc[0]
    for file, content in contents.items():
        say(f"  outputs/runs/{file} ({len(content):,} bytes)")
    say("Texts in these files:")
    for key, values in sorted(texts(contents).items()):
        say(f"  {key}: {' | '.join(sorted(values))}")
    what = f"{len(rows)} rows of {rows['run_id'].nunique()} runs of {name}"
    say(
        f"{what}: {len(contents)} files, in {short(archive)}, for {repository or 'no repository yet'}."
    )
    if dry_run:
        say("Nothing was sent." if repository else f"Nothing was sent; {NO_REPOSITORY}.")
        return
    if not repository:
        raise ValueError(NO_REPOSITORY)
    issue = urlencode({"template": "results.yml", "title": f"Rows of {name}", "notes": what})
    attach = (
        f"attach {short(archive)} to an issue: https://github.com/{repository}/issues/new?{issue}"
    )
    if not output("gh", "auth", "token"):
        say(f"{NO_GH} Instead, {attach}")
        return
    if not typer.confirm("Send them, to be published under the project's licence?"):
        say("Nothing was sent.")
        return
    try:
        say(send(repository, name, contents, what))
    except OSError as error:
        say(f"Not sent: {error}. The same command sends them later; or {attach}")
        raise typer.Exit(1) from None


def texts(contents: dict[str, bytes]) -> dict[str, set[str]]:
    """Return every text in rows and manifests by its column or key, without times, ids of runs
    and pictures."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, content in contents.items():
        if name.endswith(".json"):
            _note(found, "manifest", json.loads(content))
            continue
        table = pandas.read_csv(io.BytesIO(content), dtype=str)
        for column in table.columns.difference(NO_TEXTS):
            if schema.DTYPES.get(column, "string") == "string":
                _note(found, column, table[column].dropna().tolist())
        for settings in table.get("settings", pandas.Series(dtype=str)).dropna():
            _note(found, "settings", json.loads(settings))
    return found


def _note(found: dict[str, set[str]], key: str, value: object) -> None:
    """Add the texts in a value of JSON by their keys."""
    if isinstance(value, dict) and key.endswith(".packages"):
        found[key].add(", ".join(f"{name} {version}" for name, version in value.items()))
    elif isinstance(value, dict):
        for name in value.keys() - {"pictures"}:
            _note(found, f"{key}.{name}", value[name])
    elif isinstance(value, list):
        for inner in value:
            _note(found, key, inner)
    elif isinstance(value, str):
        found[key].add(value)


def send(repository: str, machine: str, contents: dict[str, bytes], what: str) -> str:
    """Push a machine's files as the branch `rows-<machine>`, of a fork without write access, and
    open a pull request.

    Args:
        repository: owner/name.
        machine: names the branch.
        contents: files by their names below outputs/runs.
        what: the request's text.

    Returns:
        A sentence with the result and the request's address.

    Raises:
        OSError: `gh` or git failed; the message has the last line that it printed.
    """
    branch, title = f"rows-{machine}", f"Add rows of {machine}"
    with temporary.folder() as folder:
        login = _run(folder, "gh", "api", "user", "--jq", ".login")
        fields = "nameWithOwner,viewerPermission,defaultBranchRef"
        target = json.loads(_run(folder, "gh", "repo", "view", repository, "--json", fields))
        to, base = target["nameWithOwner"], target["defaultBranchRef"]["name"]
        is_own = target["viewerPermission"] in MAY_WRITE
        get = ("clone", to) if is_own else ("fork", to, "--clone")
        _run(folder, "gh", "repo", *get, "--", "--quiet", "--filter=blob:none", "--no-checkout")
        (folder,) = folder.glob("*/")
        git = partial(_run, folder, "git")
        git("reset", "--quiet", f"{'origin' if is_own else 'upstream'}/{base}")
        for name, content in contents.items():
            path = folder / "outputs" / "runs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        git("add", "--force", f"outputs/runs/{machine}")
        if not git("diff", "--cached", "--name-only"):
            return f"{to} already has all of these files."
        # The account is the author: a name and an address of git's settings would be published.
        author = ("-c", f"user.name={login}", "-c", f"user.email={login}@users.noreply.github.com")
        unsigned = ("--quiet", "--no-verify", "--no-gpg-sign")
        git(*author, "commit", *unsigned, "--message", title)
        helper = ("-c", "credential.helper=!gh auth git-credential")
        git(*helper, "push", "--quiet", "--force", "origin", f"HEAD:refs/heads/{branch}")
        owner = to.partition("/")[0] if is_own else login
        chosen = f'.[] | select(.headRepositoryOwner.login == "{owner}") | .url'
        found = ("--head", branch, "--json", "url,headRepositoryOwner", "--jq", chosen)
        head = branch if is_own else f"{login}:{branch}"
        made = ("--base", base, "--head", head, "--title", title, "--body", f"{what}.")
        opened = _run(folder, "gh", "pr", "list", "--repo", to, *found)
        return f"Pull request: {opened or _run(folder, 'gh', 'pr', 'create', '--repo', to, *made)}"


def _run(folder: Path, *command: str) -> str:
    """Return what a command prints, or raise an OSError with the last line of its errors."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | QUIET,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise OSError(
            f"{command[0]}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
        )
    return done.stdout.strip()
