"""Write docs/FAULTS.md, the table of faults that tests hold: what goes wrong, what the user sees, and the test."""

import ast
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "FAULTS.md"
HEAD = """# What may go wrong, and what one sees of it

Each line is held by the test beside it, which brings the fault about. The table is made from these tests by
`python tests/fault_table.py`.

| fault, and what the user sees | test |
|---|---|
"""


def table() -> str:
    """Return the page: one line for each `fault` mark, by file."""
    text = HEAD
    tests = Path(__file__).parent
    for path in sorted(tests.rglob("test_*.py")):
        for function in ast.parse(path.read_text(encoding="utf-8")).body:
            for mark in getattr(function, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fault":
                    text += f"| {ast.literal_eval(mark.args[0])} | `{path.relative_to(tests)}::{function.name}` |\n"
    return text


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(table(), encoding="utf-8")
