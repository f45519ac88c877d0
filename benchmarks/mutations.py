"""Change one operator or number of the library or a study at a time, and count how often the tests that run
that line notice.

`python benchmarks/mutations.py FOLDER` runs the fast tests once to learn which of them run each
line (a quarter of an hour) and says which share of the statements they run, draws 80 mutations
with a fixed seed, and runs for each at most 20 s of the tests of its line and of their modules,
the shortest first, in a copy of the checkout (an hour). It goes on where it was stopped. Words
after the folder choose tests, as pytest's do. A change elsewhere keeps the draw of a line. It
needs `pip install coverage`. A test runs the lines of the processes that it or its fixtures
start, too.
"""

import ast
import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
CHANGED = ROOT / "lib" / "benchbook", ROOT / "notebooks" / "studies"
SEED, COUNT, SECONDS = 20261128, 80, 20.0
MARKS = "not slow and not slurm and not browser"
KILLED, SURVIVED, LATE, NO_TEST = "killed", "survived", "out of time", "no test"
SWAPPED = {
    ast.Lt: ast.GtE, ast.LtE: ast.Lt, ast.Gt: ast.LtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}  # fmt: skip
CALLS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "first": "last",
    "last": "first",
    "sum": "max",
}
CALLS |= {"notna": "isna", "isna": "notna", "median": "max", "mean": "max"}


def learn(folder: Path, words: list[str]) -> None:
    """Run the tests once; leave which of them ran each line, and how long each took."""
    rules, variables = (
        folder / "rules",
        os.environ | {"COVERAGE_PROCESS_START": str(folder / "rules")},
    )
    source = ", ".join(map(str, CHANGED))
    told = f"[run]\nsource = {source}\ndynamic_context = test_function\ndata_file = {folder / 'lines'}\n"
    rules.write_text(
        f"{told}parallel = true\ncontext = ${{PYTEST_CURRENT_TEST-}}\n"
    )  # which a child inherits
    chosen = [
        "-p",
        "no:cacheprovider",
        "-m",
        MARKS,
        "-n",
        "auto",
        f"--junitxml={folder / 'times.xml'}",
        *words,
    ]
    runs = [
        ["run", f"--rcfile={rules}", "-m", "pytest", "-q", *chosen],
        ["combine", "-q", f"--rcfile={rules}"],
    ]
    for command in (*runs, ["report", "--format=total", f"--data-file={folder / 'lines'}"]):
        subprocess.run(
            [sys.executable, "-m", "coverage", *command], cwd=ROOT, env=variables, check=False
        )


def tests_by_line(folder: Path) -> tuple[dict[tuple[str, int], set[str]], dict[str, float]]:
    """Return the passing tests that ran each line of each file, and the seconds of each test."""
    import coverage

    seconds, failed = defaultdict(float), set()
    for case in ElementTree.parse(folder / "times.xml").iter("testcase"):
        name = f"{case.get('classname').replace('.', '/')}.py::{case.get('name').partition('[')[0]}"
        seconds[name] += float(case.get("time"))
        failed |= {name} if {part.tag for part in case} & {"failure", "error"} else set()
    known = {
        f"{Path(name.partition('::')[0]).stem}.{name.partition('::')[2]}": name for name in seconds
    }
    data, lines = coverage.CoverageData(str(folder / "lines")), {}
    data.read()
    for file in data.measured_files():
        for number, contexts in data.contexts_by_lineno(file).items():
            names = {known.get(_named(context)) for context in contexts}
            lines[str(Path(file).relative_to(ROOT)), number] = names - failed - {None}
    return lines, seconds


def _named(context: str) -> str:
    """Return module and function of a context: "a.b.test_c.test_d", or of a child:
    "a/test_c.py::test_d[1] (setup)"."""
    child = re.match(r"(?:.*/)?(\w+)\.py::(\w+)", context)
    return ".".join(child.groups() if child else context.split(".")[-2:])


def sites(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the expressions of a module that are changed, and what takes their place; texts and
    names stay."""
    for node in ast.walk(tree):
        new: Any = copy.deepcopy(node)
        match new:
            case ast.Compare(ops=[operator]) if type(operator) in SWAPPED:
                new.ops = [SWAPPED[type(operator)]()]
            case ast.BoolOp(op=operator) | ast.BinOp(op=operator) if type(operator) in SWAPPED:
                new.op = SWAPPED[type(operator)]()
            case ast.Constant(value=value) if type(value) in (int, float):
                new.value = value + 1 if value in (0, 1) else 2 * value
            case ast.IfExp(body=body, orelse=other):
                new.body, new.orelse = other, body
            case ast.UnaryOp(op=ast.Not(), operand=inside):
                new = inside
            case ast.Call(func=ast.Attribute(attr=name) as called) if name in CALLS:
                called.attr = CALLS[name]
            case ast.If(test=test) | ast.While(test=test) if not isinstance(
                test, ast.Compare | ast.BoolOp | ast.UnaryOp
            ):
                node, new = test, ast.UnaryOp(ast.Not(), test)
            case _:
                continue
        yield node, new


def mutations() -> list[tuple[str, int, str, str, str]]:
    """Return every mutation in an order of SEED: file, line, text before, text after, and the
    file's new content."""
    made = {}
    for path in sorted(path for folder in CHANGED for path in folder.rglob("*.py")):
        content = path.read_text(encoding="utf-8")
        starts = [0]
        for line in content.encode().splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        for node, changed in sites(ast.parse(content)):
            first = starts[node.lineno - 1] + node.col_offset
            last = starts[node.end_lineno - 1] + node.end_col_offset
            whole, after = content.encode(), f"({ast.unparse(changed)})"
            new = (whole[:first] + after.encode() + whole[last:]).decode()
            found = (
                str(path.relative_to(ROOT)),
                node.lineno,
                whole[first:last].decode(),
                after,
                new,
            )
            words = f"{SEED} {path.name} {content.splitlines()[node.lineno - 1]} {node.col_offset} {after}"
            made[hashlib.sha256(words.encode()).hexdigest()] = found
    return [made[key] for key in sorted(made)]


def outcome(place: Path, file: str, content: str, tests: list[str]) -> str:
    """Return what the tests of a line say of a file's other content in a copy of the checkout."""
    own = (place / file).read_text(encoding="utf-8")
    (place / file).write_text(content, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        MARKS,
        *tests,
    ]
    variables = os.environ | {"PYTHONPATH": str(place / "lib"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=place, env=variables, capture_output=True, timeout=6 * SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return LATE
    finally:
        (place / file).write_text(own, encoding="utf-8")
    return {0: SURVIVED, 1: KILLED}.get(done.returncode, f"pytest ended with {done.returncode}")


def main() -> None:
    folder, words = Path(sys.argv[1]).resolve(), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "times.xml").exists():
        learn(folder, words)
    lines, seconds = tests_by_line(folder)
    place, results = folder / "copy", folder / "results.jsonl"
    shutil.rmtree(place, ignore_errors=True)
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    known = (
        [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    )
    for file, line, before, after, content in mutations()[len(known) : COUNT]:
        tests, spent, own = [], 0.0, lines.get((file, line), set())
        modules = {
            test.partition("::")[0] for test in own
        }  # whose fixtures may run the line for all of their tests
        beside = {test for test in seconds if test.partition("::")[0] in modules} - own
        for test in [*sorted(own, key=seconds.get), *sorted(beside, key=seconds.get)]:
            spent += seconds[test]
            tests += [test] if spent <= SECONDS or not tests else []
        found = outcome(place, file, content, tests) if tests else NO_TEST
        known.append(
            {"file": file, "line": line, "before": before, "after": after, "outcome": found}
        )
        with results.open("a") as written:
            written.write(json.dumps(known[-1]) + "\n")
        print(f"{found}: {file}:{line}: {before!r} -> {after!r} ({len(tests)} tests)", flush=True)
    counts = Counter(each["outcome"] for each in known)
    decided = counts[KILLED] + counts[SURVIVED]
    print(f"{counts[KILLED]} of {decided} decided mutations were noticed; {dict(counts)}")


if __name__ == "__main__":
    main()
