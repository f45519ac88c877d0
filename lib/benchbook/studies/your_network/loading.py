"""The user's own code by name, `module:callable` or `path/to/file.py:callable`; it runs when it is measured."""

import ast
import difflib
import functools
import hashlib
import importlib
import importlib.util
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchbook.machine import identity
from benchbook.measuring import failures

FORMS = "module:callable, such as torchvision.models:resnet18, or path/to/file.py:callable"
HINT = "install packages that the lock lacks from a file: make setup EXTRAS=my-requirements.txt"
RELATIVE = "name a file of a package as package.module:callable, from the folder that has the package"
TRAINS = 'put what a script does under `if __name__ == "__main__":`, or measure its loop with benchbook.measure'
MOST_NAMED = 8  # callables of a module that an error lists


class Misfit(ValueError):
    """Your network, example, loader or loss does not fit; the message says which, and what is allowed."""


def resolve(name: str, what: str) -> Callable:
    """Return a callable by its name. Its module is imported, or its file run, only once.

    Args:
        name: one of FORMS; a method of a class has dots, as in module:Class.method.
        what: the parameter with the name, for errors.

    Raises:
        ValueError: no such file, module or callable; the message lists the callables there are.
    """
    place, attribute = find(name, what)
    with named_in_errors(f"{what} {name!r}: {Path(place).name}"):
        module = _run(place) if isinstance(place, Path) else importlib.import_module(place)
    try:
        value, state = operator.attrgetter(attribute)(module), "is not callable"
    except AttributeError:
        value, state = None, "is not in it"
    if not callable(value):
        own = [key for key, each in vars(module).items() if callable(each) and not key.startswith("_")]
        nearest = difflib.get_close_matches(attribute, dict.fromkeys(own), n=MOST_NAMED, cutoff=0.0)
        names = ", ".join(nearest) + (" and others" if len(own) > MOST_NAMED else "")
        raise ValueError(f"{what} {name!r}: {attribute} {state}; it has {names or 'none'}")
    return value


def look(names: dict[str, str]) -> None:
    """Resolve callables by parameter, in a process of its own; empty names are left out. For errors see `resolve`."""
    for what, name in names.items():
        if name:
            resolve(name, what)


@contextmanager
def named_in_errors(what: str) -> Iterator[None]:
    """Name the part of your code that raised an error. An out-of-memory error is left as it is.

    Args:
        what: the part, as the subject of the message.

    Raises:
        Misfit: in place of any other error.
    """
    try:
        yield
    except Misfit:
        raise
    except SystemExit as ended:
        raise Misfit(f"{what} ended Python (SystemExit: {ended}); {TRAINS}") from ended
    except Exception as error:
        kind = type(error).__name__
        if failures.status_of(kind, str(error)) == "out_of_memory":
            raise
        hint = RELATIVE if "relative import" in str(error) else HINT
        hint = f"; {hint}" if isinstance(error, ImportError) else ""
        raise Misfit(f"{what} raised {kind}: {failures.last_line(str(error))}{hint}") from error


def keywords(arguments: str) -> dict[str, Any]:
    """Return the keyword arguments in a text, written as in a call with literal values.

    Raises:
        ValueError: the text is anything else.
    """
    try:
        tree = ast.parse(f"_({arguments})", mode="eval").body
        if tree.args or any(word.arg is None for word in tree.keywords):
            raise ValueError("a value without a name")
        return {word.arg: ast.literal_eval(word.value) for word in tree.keywords}
    except (SyntaxError, ValueError) as error:
        raise ValueError(f'arguments {arguments!r}; allowed: such as "num_classes=10, depth=2"') from error


def origins(names: dict[str, str]) -> dict[str, dict]:
    """Return name, digest and commit of the files with the callables, for the manifest.

    Args:
        names: callables by parameter; empty names and callables of modules are left out.

    Raises:
        ValueError: a file does not exist.
    """
    described = {}
    for what, name in names.items():
        path = find(name, what)[0] if name else ""
        if isinstance(path, Path):
            digest, commit = hashlib.sha256(path.read_bytes()).hexdigest(), identity.revision(path.parent, path.name)
            described[what] = {"file": path.name, "sha256": digest, "commit": commit or None}
    return described


def find(name: str, what: str) -> tuple[Path | str, str]:
    """Return the file or module and the callable in a name; modules in the current folder become importable.

    Raises:
        ValueError: the name has neither of FORMS, or there is no such file.
    """
    place, _, attribute = name.rpartition(":")
    is_file = place.endswith(".py")
    parts = attribute.split(".") + ([] if is_file else place.split("."))
    if not all(map(str.isidentifier, parts)):
        raise ValueError(f"{what} {name!r}; allowed: {FORMS}")
    if not is_file:
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        return place, attribute
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"{what} {name!r}: {place} is not a file; allowed: {FORMS}")
    return path, attribute


@functools.cache
def _run(path: Path) -> Any:
    """Return the module of a file, which runs once in a process: some files cannot run twice."""
    if str(path.parent) not in sys.path:  # for the file's imports from its folder
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
