"""Measure a hundred tiny points while processes are killed, signals arrive and the disk fills
up, then look for losses.

Run it with `make bench STUDIES=soak`, on Linux; the full disk needs the right to mount one.
Every point must end in one state, no row may be lost, no window may be measured twice, and no
process or marker may be left.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchbook.commands.output import SOME_FAILED
from benchbook.machine import layout, processes, stopping
from benchbook.rows import records

ENDED, REFUSED = 0, 2
STUDY = "softmax_digits"
LIMIT_OF_POINT_SECONDS = 60.0  # per point of the study, counted from the last fault
LIMIT_OF_REPORT_SECONDS = 600.0  # for the report after that
PAUSE_SECONDS = (1.0, 30.0)  # between two faults: some happen during a start, some during a point
DISK, INODES = "512m", 20_000
STOPPED_SECONDS = (1.0, 60.0)


class Soak:
    """The study of docs/toy in a copy, and its faults.

    Args:
        folder: for the copy; its outputs are on a disk of their own if this user may mount one.
        num_points: of the study.
        chance: chooses the faults.
        only_kills: kill processes, and do nothing else.
    """

    def __init__(
        self, folder: Path, num_points: int, chance: random.Random, only_kills: bool
    ) -> None:
        self.studies, self.outputs, self.chance = folder / "mine", folder / "disk", chance
        shutil.copytree(layout.root() / "docs" / "toy", self.studies)
        self.only_kills, self.seen = only_kills, set()
        self.temporary = (
            folder / "tmp"
        )  # short, because the path of a kernel's socket has at most 100 characters
        for own in (self.outputs, self.temporary):
            own.mkdir()
        mount = [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            f"size={DISK},nr_inodes={INODES}",
            "tmpfs",
            str(self.outputs),
        ]
        self.mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        rates = [number / 1000 for number in range(1, num_points + 1)]
        points = [{"variant": "reference", "device": "cpu", "learning_rate": rates}]
        [smoke] = yaml.safe_load((self.studies / "profiles" / "smoke.yaml").read_text()).values()
        smoke["parameters"]["budget"]["num_parity_steps"] = 0  # one run a point
        profile = self.studies / "profiles" / "soak.yaml"
        profile.write_text(yaml.safe_dump({STUDY: smoke | {"points": points}}))
        self.study: Any = None  # a process, from `start` on
        self.statuses = Counter()

    def start(self) -> None:
        """Start or continue the study."""
        variables = {
            "BENCHBOOK_STUDIES": str(self.studies),
            "BENCHBOOK_OUTPUTS": str(self.outputs),
            "BENCHBOOK_PATIENCE": "0",
        }
        variables |= {"TMPDIR": str(self.temporary)}
        command = [
            sys.executable,
            "-m",
            "benchbook",
            "study",
            "--profile",
            "soak",
            "--studies",
            STUDY,
        ]
        with (self.temporary / "log").open("w") as log:
            output = {"stdout": log, "stderr": log, "start_new_session": True}
            self.study = subprocess.Popen(command, env=os.environ | variables, **output)

    def disturb(self) -> str:
        """Cause one fault; return its name."""
        self.seen |= self.lines()
        if self.only_kills:
            return self.kill_one()
        faults = [
            self.kill_one,
            *(lambda number=number: self.signal(number) for number in stopping.STOP_SIGNALS),
        ]
        faults += [self.kill_one, self.stop_all, self.write_garbage, self.tear_notebook]
        return self.chance.choice(
            [*faults, *([self.fill_disk, self.take_inodes] if self.mounted else [])]
        )()

    def lines(self) -> set[tuple[Path, str]]:
        """Return every complete line of rows, with its file."""
        files = {path: path.read_text() for path in (self.outputs / "runs").rglob("*.csv")}
        return {
            (path, line)
            for path, text in files.items()
            for line in text.splitlines(True)
            if line.endswith("\n")
        }

    def kill_one(self) -> str:
        """Kill one of the study's processes, as the system does when memory is short."""
        members = processes.tree(self.study.pid)
        if members:
            victim = self.chance.choice(members)
            victim.kill()
        return "SIGKILL"

    def signal(self, number: int) -> str:
        """Send SIGTERM to the study, or another signal to its whole process group, as a terminal
        does."""
        send = os.kill if number == signal.SIGTERM else os.killpg
        send(self.study.pid, number)
        return signal.Signals(number).name

    def stop_all(self) -> str:
        """Stop all processes of the study for a while, as a computer that sleeps."""
        members = processes.tree(self.study.pid)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for member in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.send_signal(number)
            if number == signal.SIGSTOP:
                time.sleep(self.chance.uniform(*STOPPED_SECONDS))
        return "SIGSTOP"

    def write_garbage(self) -> str:
        """Overwrite a marker or another file of the study's state."""
        files = [
            path for path in self.outputs.rglob("*") if path.name.endswith((".running", ".session"))
        ]
        if files:
            self.chance.choice(files).write_bytes(bytes(range(256)))
        return "garbage"

    def tear_notebook(self) -> str:
        """Cut the notebook in half for a while, as an editor or a synchronised folder does."""
        (notebook,) = self.studies.glob("*.ipynb")
        text = notebook.read_text()
        notebook.write_text(text[: len(text) // 2])
        time.sleep(3)
        notebook.write_text(text)
        return "torn notebook"

    def take_inodes(self) -> str:
        """Create empty files until there can be no more, for a while."""
        folder = self.outputs / "empty"
        try:
            folder.mkdir()
            for number in range(INODES):
                (folder / str(number)).touch()
        except OSError:
            time.sleep(3)
        shutil.rmtree(folder)
        return "no inodes"

    def fill_disk(self) -> str:
        """Fill the disk for a while."""
        filler = self.outputs / "filler"
        try:
            with filler.open("wb") as file:
                while True:
                    file.write(bytes(2**20))
        except OSError:
            time.sleep(3)
        filler.unlink()
        return "full disk"


def finish(soak: Soak, num_faults: int, limit_seconds: float) -> Counter:
    """Disturb the study `num_faults` times, then let it end within the limit; return the count
    of each fault."""
    faults = Counter()
    soak.start()
    may_disturb = num_faults > 0
    while True:
        try:
            status = soak.study.wait(
                soak.chance.uniform(*PAUSE_SECONDS) if may_disturb else limit_seconds
            )
        except subprocess.TimeoutExpired:
            if not may_disturb:
                raise
            faults[soak.disturb()] += 1
            print(f"{faults.total()} faults", flush=True)
            may_disturb = faults.total() < num_faults
            continue
        soak.statuses[status] += 1
        if status in (ENDED, SOME_FAILED):
            return faults
        if (
            soak.statuses[REFUSED] > 1 + faults["torn notebook"] + faults["SIGKILL"]
        ):  # of the survey of devices
            sys.exit(
                f"the study is refused, and no fault is the reason: {(soak.temporary / 'log').read_text()}"
            )
        soak.start()


def losses(soak: Soak, num_points: int) -> list[str]:
    """Return a line for each loss, repetition or leftover."""
    rows = records.merge(soak.outputs / "runs")
    is_whole = rows.groupby(["point", "run_id"])["status"].agg(
        lambda statuses: statuses.eq("ok").all()
    )
    measured = (
        is_whole[is_whole].groupby("point").size()
    )  # runs that were cut short after their windows do not count
    last = rows.sort_values(["run_id"]).groupby("point")["status"].last()
    left = [member for member in psutil.process_iter(["environ"]) if _is_ours(member, soak)]
    return [
        *(f"lost: {line.strip()} of {path}" for path, line in sorted(soak.seen - soak.lines())),
        *(f"{point}: measured {count} times" for point, count in measured.items() if count != 1),
        *(
            [f"{rows['point'].nunique()} points of {num_points}"]
            if rows["point"].nunique() != num_points
            else []
        ),
        *(
            f"{point}: ends in {status}"
            for point, status in last.items()
            if status not in ("ok", "crashed", "timeout")
        ),
        *(f"left: {path.name}" for path in soak.outputs.rglob("*.running")),
        *(f"left: process {member.pid}" for member in left),
    ]


def _is_ours(member: psutil.Process, soak: Soak) -> bool:
    variables = member.info["environ"] or {}
    return variables.get("BENCHBOOK_OUTPUTS") == str(soak.outputs)


def main() -> None:
    """Run the soak and print its faults and losses."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument(
        "--kills", action="store_true", help="kill processes (kill -9), and do nothing else"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="where to copy the outputs if anything was lost")
    arguments = parser.parse_args()
    limit_seconds = LIMIT_OF_POINT_SECONDS * arguments.points + LIMIT_OF_REPORT_SECONDS
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak = Soak(Path(folder), arguments.points, random.Random(arguments.seed), arguments.kills)
        try:
            faults = finish(soak, arguments.faults, limit_seconds)
            complaints = losses(soak, arguments.points)
            if complaints and arguments.keep:
                shutil.copytree(soak.outputs, arguments.keep)
        finally:
            if soak.mounted:
                subprocess.run(["umount", "-l", str(soak.outputs)], check=False)
    print(f"{arguments.points} points in {time.monotonic() - began:.0f} s under {dict(faults)}")
    print(
        f"the study was started {soak.statuses.total()} times, and ended with {dict(soak.statuses)}"
    )
    print("\n".join(complaints) or "nothing was lost, nothing was measured twice, nothing was left")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
