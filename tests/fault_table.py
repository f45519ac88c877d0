"""Print the table of faults that tests hold, for the docs: what goes wrong, what the user sees, and the test's file."""

import ast
from pathlib import Path


def main() -> None:
    """Print one line of Markdown for each `fault` mark, by file."""
    print("| fault, and what the user sees | test |\n|---|---|")
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for function in ast.parse(path.read_text(encoding="utf-8")).body:
            for mark in getattr(function, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fault":
                    print(f"| {ast.literal_eval(mark.args[0])} | `{path.name}::{function.name}` |")


if __name__ == "__main__":
    main()
