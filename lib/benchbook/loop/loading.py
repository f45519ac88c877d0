"""The user's own code by name, `module:callable` or `path/to/file.py:callable`; it runs when it
is measured."""

import ast
import functools
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from benchbook.machine import layout
from benchbook.measuring import failures

FORMS = "module:callable, such as torchvision.models:resnet18, or path/to/file.py:callable"
HINTS = {
    ImportError: "install a package that is missing with "
    + (
        "make setup EXTRAS=my-requirements.txt, a file that names it"
        if layout.checkout()
        else "python -m pip install"
    )
    + "; name a file of a package as package.module:callable, from the folder that has the package",
    SystemExit: 'put what a script does under `if __name__ == "__main__":`, or measure its loop with benchbook.measure',
}


@contextmanager
def naming(part: str) -> Iterator[None]:
    """Name the part of the user's code that raised an error or ended Python.

    Raises:
        ValueError: in place of the error, with its type, its message and, for some types, what
        to do.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        hint = "".join(f"; {text}" for kind, text in HINTS.items() if isinstance(error, kind))
        raise ValueError(
            f"{part} raised {type(error).__name__}: {failures.last_line(str(error))}{hint}"
        ) from error


def resolve(name: str, what: str) -> Callable:
    """Return a callable by its name. Its module is imported, or its file run, only once.

    Args:
        name: one of FORMS; a method of a class has dots, as in module:Class.method.
        what: the parameter with the name, for errors.

    Raises:
        ValueError: the name has neither form, or its module raised an error.
    """
    place, colon, attribute = name.rpartition(":")
    if not colon:
        raise ValueError(f"{what} {name!r}; allowed: {FORMS}")
    with naming(f"{what} {name!r}"):
        return (
            attrgetter(attribute)(_run(Path(place).resolve()))
            if is_file(name)
            else pkgutil.resolve_name(name)
        )


def is_file(name: str) -> bool:
    """Return whether a name is of a callable in a file."""
    return name.rpartition(":")[0].endswith(".py")


def keywords(arguments: str) -> dict[str, Any]:
    """Return the keyword arguments in a text, written as in a call with literal values.

    Raises:
        ValueError: the text is anything else.
    """
    try:
        tree = ast.parse(f"_({arguments})", mode="eval").body
        if (
            not isinstance(tree, ast.Call)
            or tree.args
            or any(word.arg is None for word in tree.keywords)
        ):
            raise ValueError("a value without a name")
        return {word.arg: ast.literal_eval(word.value) for word in tree.keywords}
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f'arguments {arguments!r}; allowed: such as "num_classes=10, depth=2"'
        ) from error


@functools.cache
def _run(path: Path) -> Any:
    """Return the module of a file, which runs once in a process: some files cannot run twice."""
    sys.path.insert(0, str(path.parent))  # for the file's imports from its folder, as in a script
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
