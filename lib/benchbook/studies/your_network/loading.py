"""Your own code by name, `module:callable` or `path/to/file.py:callable`; it runs when it is measured, never before."""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORMS = "module:callable, such as torchvision.models:resnet18, or path/to/file.py:callable"
MOST_NAMED = 8  # callables of a module that an error lists


def resolve(name: str, what: str) -> Callable:
    """Return a callable by its name; its module is imported, or its file run.

    Args:
        name: see the module.
        what: which parameter holds the name, for an error.

    Raises:
        ValueError: no such file, module or callable; the message says what there is.
    """
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise ValueError(f"{what} {name!r}; allowed: {FORMS}")
    module = _module(place, what, name)
    value = getattr(module, attribute, None)
    if not callable(value):
        own = [key for key, each in vars(module).items() if callable(each) and not key.startswith("_")]
        listed = ", ".join(own[:MOST_NAMED]) + (" and others" if len(own) > MOST_NAMED else "")
        state = "is no callable" if hasattr(module, attribute) else "is not in it"
        raise ValueError(f"{what} {name!r}: {attribute} {state}; it has {listed or 'none'}")
    return value


def call(make: Callable, options: dict[str, Any], arguments: str, what: str) -> Any:
    """Call what makes a network, with those options that its signature names and the arguments that were asked for.

    Args:
        make: the callable.
        options: by name; those that it does not name are left out.
        arguments: keyword arguments as Python writes them, such as `num_classes=10, depth=2`.
        what: which parameter holds the callable's name, for an error.

    Raises:
        ValueError: arguments that are none, or that the callable does not take.
    """
    try:
        named = set(inspect.signature(make).parameters)
    except (TypeError, ValueError):  # some callables of C tell nothing
        named = set()
    given = {name: value for name, value in options.items() if name in named} | keywords(arguments)
    try:
        return make(**given)
    except TypeError as error:
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise ValueError(f"{what} could not be called with ({shown}): {error}") from error


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


def _module(place: str, what: str, name: str) -> Any:
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ImportError as error:
            hint = "packages beside the lock come from a file: make study EXTRAS=my-requirements.txt"
            raise ValueError(f"{what} {name!r}: {error}; {hint}") from error
    path = _file(place, what, name)
    if str(path.parent) not in sys.path:  # for what the file imports from beside it
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
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
