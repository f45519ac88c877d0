"""Every attribute of the library's modules that library, notebooks and tests name exists; files are read, not imported.

A type checker would find the same, and much else; none is in the environment's lock.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchbook.machine import layout

NESTED = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
NESTED |= ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
OF_ANY_MODULE = {"__name__", "__doc__", "__file__", "__path__"}

Names = dict[str, str | None]  # what a scope binds each name to: a module, or None for anything else


class Library:
    """The modules below a folder, and the names that each binds."""

    def __init__(self, folder: Path) -> None:
        files = {path.relative_to(folder).with_suffix("").parts: path for path in folder.rglob("*.py")}
        self.files = {".".join(parts[:-1] if parts[-1] == "__init__" else parts): files[parts] for parts in files}
        trees = {module: ast.parse(path.read_text("utf-8")) for module, path in self.files.items()}
        self.names = {module: self.bound(list(nodes_of(tree))) | globals_of(tree) for module, tree in trees.items()}

    def faults(self, scope: ast.AST, outer: tuple[Names, ...] = ()) -> Iterator[str]:
        """Yield each attribute and each import that names what no module has."""
        nodes = list(nodes_of(scope))
        scopes = (*outer, self.bound(nodes))
        for node in nodes:
            if isinstance(node, NESTED):  # a method does not see the names of its class
                yield from self.faults(node, outer if isinstance(scope, ast.ClassDef) else scopes)
            elif isinstance(node, ast.Attribute):
                module = self.module_of(node.value, scopes)
                if module and not self.has(module, node.attr):
                    yield f"line {node.lineno}: {ast.unparse(node)}"
            elif isinstance(node, ast.Import):
                names = [one.name for one in node.names if self.is_own(one.name) and one.name not in self.files]
                yield from (f"line {node.lineno}: import {name}" for name in names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"line {node.lineno}: from {name}" for name in self.not_there(node))

    def bound(self, nodes: list[ast.AST]) -> Names:
        """Return what the nodes of a scope bind; a name that they bind to two things may be anything."""
        names = defaultdict(set)
        for node in nodes:
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
        return {name: self.module_among(targets) for name, targets in names.items()}

    def module_among(self, targets: set[str | None]) -> str | None:
        [target] = targets if len(targets) == 1 else [None]
        return target if target in self.files else None

    def module_of(self, node: ast.AST, scopes: tuple[Names, ...]) -> str | None:
        """Return the module that an expression is."""
        if isinstance(node, ast.Name):
            return next((names[node.id] for names in reversed(scopes) if node.id in names), None)
        module = self.module_of(node.value, scopes) if isinstance(node, ast.Attribute) else None
        return module and self.names[module].get(node.attr, self.module_among({f"{module}.{node.attr}"}))

    def has(self, module: str, name: str) -> bool:
        """Return whether a module binds a name, or is a package with a module of that name."""
        return name in self.names[module] or f"{module}.{name}" in self.files or name in OF_ANY_MODULE

    def not_there(self, node: ast.ImportFrom) -> list[str]:
        """Return what is imported from the library and not there; a relative import, which is not read, is a fault."""
        if node.level:
            return [f"{'.' * node.level}{node.module or ''}: relative, which is not read here"]
        if not self.is_own(node.module):
            return []
        if node.module not in self.files:
            return [node.module]
        return [f"{node.module} import {one.name}" for one in node.names if not self.has(node.module, one.name)]

    def is_own(self, module: str) -> bool:
        return module.partition(".")[0] in self.files


def nodes_of(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, and those that are scopes themselves without what is in them."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, NESTED):
            waiting += ast.iter_child_nodes(node)


def globals_of(tree: ast.Module) -> Names:
    return dict.fromkeys(name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names)


def test_every_attribute_of_a_module_that_is_named_exists():
    library = Library(layout.root() / "lib")
    assert library.files
    sources = {str(path): path.read_text("utf-8") for path in library.files.values()}
    sources |= {str(path): path.read_text("utf-8") for path in Path(__file__).parent.rglob("*.py")}
    for path in layout.notebooks().values():
        sources[path.name] = "\n".join(cell["source"] for cell in layout.cells(path) if cell["cell_type"] == "code")
    faults = {name: list(library.faults(ast.parse(source))) for name, source in sources.items()}
    assert {name: lines for name, lines in faults.items() if lines} == {}


@pytest.fixture
def library(tmp_path):
    """Return a small library: a package with a module, and a package in it with another one."""
    files = {
        "top/__init__.py": "",
        "top/search.py": "LIMIT = 1\ndef fastest():\n    global found\n    found = 1",
        "top/inner/__init__.py": "from top.search import LIMIT\nfrom top import search as near",
        "top/inner/deep.py": "class Deep: pass",
    }
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    return Library(tmp_path)


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("from top import search\nsearch.fastest(search.LIMIT, search.found)", []),
        ("from top import search as other\nother.for_point()", ["line 2: other.for_point"]),
        ("import top.search\ntop.search.for_point()", ["line 2: top.search.for_point"]),
        ("from top import inner\ninner.deep.Deep, inner.LIMIT", []),
        ("from top import inner\ninner.deep.Deeper", ["line 2: inner.deep.Deeper"]),
        ("from top import inner\ninner.near.for_point", ["line 2: inner.near.for_point"]),
        ("from top import inner\ninner.shallow.Deep", ["line 2: inner.shallow"]),
        ("from top import search\ndef f():\n    return [search.nothing for _ in ()]", ["line 3: search.nothing"]),
        ("def f():\n    from top import search\n    return search.nothing", ["line 3: search.nothing"]),
        ("from top import search\ndef f(search):\n    return search.nothing", []),
        ("from top import search\n[search.nothing for search in ()]", []),
        (
            "from top import search\nclass A:\n    search = 1\n    def f(self): search.nothing",
            ["line 4: search.nothing"],
        ),
        ("from top.search import slowest", ["line 1: from top.search import slowest"]),
        ("from top.nowhere import LIMIT", ["line 1: from top.nowhere"]),
        ("import top.nowhere", ["line 1: import top.nowhere"]),
        ("from . import search", ["line 1: from .: relative, which is not read here"]),
        ("import os\nos.nothing", []),
    ],
)
def test_what_does_not_exist_is_found_and_what_only_has_a_modules_name_is_not(library, source, faults):
    assert list(library.faults(ast.parse(source))) == faults
