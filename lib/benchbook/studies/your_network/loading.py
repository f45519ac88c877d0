"""Your own code by name, `module:callable` or `path/to/file.py:callable`; it runs when it is measured, never before."""

import ast
import difflib
import hashlib
import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchbook.measuring import runs

FORMS = "module:callable, such as torchvision.models:resnet18, or path/to/file.py:callable"
HINT = "packages beside the lock come from a file: make study EXTRAS=my-requirements.txt"
NAMED = ("network", "example", "loss")  # parameters that name a callable
MOST_NAMED = 8  # callables of a module that an error lists


class Misfit(ValueError):
    """What the user named does not fit what it is used for; the message says which, and what is allowed."""


def resolve(name: str, what: str) -> Callable:
    """Return a callable by its name; its module is imported, or its file run.

    Args:
        name: see the module.
        what: which parameter holds the name, for an error.

    Raises:
        ValueError: no such file, module or callable; the message says what there is.
    """
    place, attribute = _parts(name, what)
    module = _module(place, what, name)
    value = getattr(module, attribute, None)
    if not callable(value):
        own = [key for key, each in vars(module).items() if callable(each) and not key.startswith("_")]
        state = "is no callable" if hasattr(module, attribute) else "is not in it"
        raise ValueError(f"{what} {name!r}: {attribute} {state}; it has {_nearest(attribute, own)}")
    return value


def check(name: str, what: str) -> None:
    """Refuse a name that cannot be resolved, as far as that is seen without importing a module or running a file.

    Raises:
        ValueError: no such package or file, a file that is not Python, or one that gives nothing that name.
    """
    place, attribute = _parts(name, what)
    if not place.endswith(".py"):
        package = place.partition(".")[0]
        if importlib.util.find_spec(package) is None:
            raise ValueError(f"{what} {name!r}: no module named {package!r}; {HINT}")
        return
    source = _file(place, what, name).read_bytes()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:  # ValueError: a zero among its bytes
        line = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else error
        raise ValueError(f"{what} {name!r}: the file is not Python: {line}") from error
    names = _names_in(tree)
    if not names & {attribute, "*", "__getattr__"}:
        own = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        raise ValueError(f"{what} {name!r}: {attribute} is not in it; it has {_nearest(attribute, own)}")


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Say of an error in the user's own code what raised it; one for want of memory stays what it is.

    Args:
        what: begins the sentence that says so.

    Raises:
        ValueError: in place of any other error.
    """
    try:
        yield
    except Misfit:  # says it already
        raise
    except Exception as error:
        kind = type(error).__name__
        if runs.status_of(kind, str(error)) == "out_of_memory":
            raise
        hint = f"; {HINT}" if isinstance(error, ImportError) else ""
        raise ValueError(f"{what} raised {kind}: {runs.last_line(str(error))}{hint}") from error


def call(make: Callable, options: dict[str, Any], arguments: str, what: str) -> Any:
    """Call what makes a network, with those options that its signature names and the arguments that were asked for.

    Args:
        make: the callable.
        options: by name; those that it does not name are left out.
        arguments: keyword arguments as Python writes them, such as `num_classes=10, depth=2`.
        what: which parameter holds the callable's name, for an error.

    Raises:
        ValueError: arguments that are none, or whatever the callable raised.
    """
    try:
        named = set(inspect.signature(make).parameters)
    except (TypeError, ValueError):  # some callables of C tell nothing
        named = set()
    given = {name: value for name, value in options.items() if name in named} | keywords(arguments)
    shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
    with blamed(f"{what}, called with ({shown}),"):
        return make(**given)


def keywords(arguments: str) -> dict[str, Any]:
    """Return keyword arguments written as in a call, with literal values.

    Raises:
        ValueError: anything else.
    """
    try:
        tree = ast.parse(f"_({arguments})", mode="eval").body
        if tree.args or any(word.arg is None for word in tree.keywords):
            raise ValueError("a value without a name")
        return {word.arg: ast.literal_eval(word.value) for word in tree.keywords}
    except (SyntaxError, ValueError) as error:
        raise ValueError(f'arguments {arguments!r}; allowed: such as "num_classes=10, depth=2"') from error


def origins(names: dict[str, str]) -> dict[str, dict]:
    """Return, of the callables that stand in files, the file's name, the digest of its bytes and its commit.

    That is what a manifest keeps of a user's code: neither the code nor where it lies.

    Args:
        names: callables by parameter; empty ones and those of modules are left out.

    Raises:
        ValueError: a file that is not there.
    """
    described = {}
    for what, name in names.items():
        place = name.rpartition(":")[0]
        if place.endswith(".py"):
            path = _file(place, what, name)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            described[what] = {"file": path.name, "sha256": digest, "commit": _commit(path)}
    return described


def _parts(name: str, what: str) -> tuple[str, str]:
    """Return the module or file that a name names, and what in it.

    Raises:
        ValueError: it has neither of FORMS.
    """
    place, _, attribute = name.rpartition(":")
    module = place.endswith(".py") or (place and all(part.isidentifier() for part in place.split(".")))
    if not module or not attribute.isidentifier():
        raise ValueError(f"{what} {name!r}; allowed: {FORMS}")
    return place, attribute


def _names_in(tree: ast.Module) -> set[str]:
    """Return every name that a file gives to something, wherever in it; "*" where it imports whatever there is."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _nearest(wanted: str, names: list[str]) -> str:
    """Return the names that are most like what was wanted."""
    listed = difflib.get_close_matches(wanted, names, n=MOST_NAMED, cutoff=0.0)
    return ", ".join(listed) + (" and others" if len(names) > MOST_NAMED else "") or "none"


def _module(place: str, what: str, name: str) -> Any:
    if not place.endswith(".py"):
        with blamed(f"{what} {name!r}: {place}"):
            return importlib.import_module(place)
    path = _file(place, what, name)
    if str(path.parent) not in sys.path:  # for what the file imports from beside it
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    with blamed(f"{what} {name!r}: {path.name}"):
        spec.loader.exec_module(module)
    return module


def _file(place: str, what: str, name: str) -> Path:
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"{what} {name!r}: {place} is not a file; allowed: {FORMS}")
    return path


def _commit(path: Path) -> str | None:
    """Return the commit of the repository that a file belongs to, with '+changed' if the file differs from it."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", "-C", path.parent, *command], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        head = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--", path.name)
    except OSError:  # no git
        return None
    return (f"{head}+changed" if changed else head) or None
