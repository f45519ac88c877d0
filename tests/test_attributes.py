"""Every attribute of the library's modules that library, notebooks and tests name exists; files are read, not imported.

A type checker would find the same, and much else; none is in the environment's lock.
"""

import ast
import symtable
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchbook.machine import layout

OF_ANY_MODULE = {"__name__", "__doc__", "__file__", "__path__"}


class Library:
    """Modules, and the names that each binds."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.names = {module: of_module(source) for module, source in sources.items()}

    def faults(self, tree: ast.Module) -> Iterator[str]:
        """Yield each attribute and each import that names what no module has.

        A name is a module where the whole file binds it to that module alone: one that is a parameter or a variable in
        another function may be anything.
        """
        names = bound(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                module = self.module_of(node.value, names)
                if module and not self.has(module, node.attr):
                    yield f"line {node.lineno}: {ast.unparse(node)}"
            elif isinstance(node, ast.Import):
                missing = [one.name for one in node.names if self.is_own(one.name) and one.name not in self.names]
                yield from (f"line {node.lineno}: import {name}" for name in missing)
            elif isinstance(node, ast.ImportFrom) and node.level:
                yield f"line {node.lineno}: a relative import, which is not read here"
            elif isinstance(node, ast.ImportFrom) and self.is_own(node.module):
                known = node.module in self.names
                missing = [one.name for one in node.names if not known or not self.has(node.module, one.name)]
                yield from (f"line {node.lineno}: from {node.module} import {name}" for name in missing)

    def module_of(self, node: ast.AST, names: dict[str, set]) -> str | None:
        """Return the module that an expression is."""
        if isinstance(node, ast.Name):
            return self.module_among(names.get(node.id, set()))
        module = self.module_of(node.value, names) if isinstance(node, ast.Attribute) else None
        return module and self.module_among(self.names[module].get(node.attr, {f"{module}.{node.attr}"}))

    def module_among(self, targets: set[str | None]) -> str | None:
        [target] = targets if len(targets) == 1 else [None]
        return target if target in self.names else None

    def has(self, module: str, name: str) -> bool:
        """Return whether a module binds a name, or is a package with a module of that name."""
        return name in self.names[module] or f"{module}.{name}" in self.names or name in OF_ANY_MODULE

    def is_own(self, module: str) -> bool:
        return module.partition(".")[0] in self.names


def bound(tree: ast.Module) -> dict[str, set[str | None]]:
    """Return what a file binds each name to, in any scope: the dotted name of what is imported, or None for others."""
    names = defaultdict(set)
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for one in node.names:
                    top = one.name.partition(".")[0]
                    names[one.asname or top].add(one.name if one.asname else top)
            case ast.ImportFrom():
                for one in node.names:
                    names[one.asname or one.name].add(f"{node.module}.{one.name}")
            case ast.Name(ctx=ast.Store() | ast.Del()):
                names[node.id].add(None)
            case ast.arg():
                names[node.arg].add(None)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.ExceptHandler():
                names[node.name].add(None)
    return names


def of_module(source: str) -> dict[str, set[str | None]]:
    """Return what a module binds its own names to; those of its functions are left out, unless they say `global`."""
    tree, table = ast.parse(source), symtable.symtable(source, "a module", "exec")
    own = {one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()}
    own |= {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    return {name: targets for name, targets in bound(tree).items() if name in own}


def test_every_attribute_of_a_module_that_is_named_exists():
    folder = layout.root() / "lib"
    names = {path: ".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.py")}
    sources = {name.removesuffix(".__init__"): path.read_text("utf-8") for path, name in names.items()}
    library = Library(sources)
    assert "benchbook.rows.records" in library.names
    sources |= {str(path): path.read_text("utf-8") for path in Path(__file__).parent.rglob("*.py")}
    for path in layout.notebooks().values():
        sources[path.name] = "\n".join(cell["source"] for cell in layout.cells(path) if cell["cell_type"] == "code")
    faults = {name: list(library.faults(ast.parse(source))) for name, source in sources.items()}
    assert {name: lines for name, lines in faults.items() if lines} == {}


SMALL = Library(  # a package with a module, and a package in it with another one
    {
        "top": "",
        "top.search": "LIMIT = 1\ndef fastest():\n    global found\n    found = mine = 1",
        "top.inner": "from top.search import LIMIT\nfrom top import search as near",
        "top.inner.deep": "class Deep: pass",
    }
)


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("from top import search\nsearch.fastest(search.LIMIT, search.found)", []),
        ("from top import search\nsearch.mine", ["line 2: search.mine"]),
        ("from top import search as other\nother.for_point()", ["line 2: other.for_point"]),
        ("import top.search\ntop.search.for_point()", ["line 2: top.search.for_point"]),
        ("from top import inner\ninner.deep.Deep, inner.LIMIT", []),
        ("from top import inner\ninner.deep.Deeper", ["line 2: inner.deep.Deeper"]),
        ("from top import inner\ninner.near.for_point", ["line 2: inner.near.for_point"]),
        ("def f():\n    from top import search\n    return search.nothing", ["line 3: search.nothing"]),
        ("from top import search\ndef f(search):\n    return search.nothing", []),
        ("from top.search import slowest", ["line 1: from top.search import slowest"]),
        ("from top.nowhere import LIMIT", ["line 1: from top.nowhere import LIMIT"]),
        ("import top.nowhere", ["line 1: import top.nowhere"]),
        ("from . import search", ["line 1: a relative import, which is not read here"]),
        ("import os\nos.nothing", []),
    ],
)
def test_what_does_not_exist_is_found_and_what_only_has_a_modules_name_is_not(source, faults):
    assert list(SMALL.faults(ast.parse(source))) == faults
