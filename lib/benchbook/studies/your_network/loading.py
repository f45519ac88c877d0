"""The user's own code by name, `module:callable` or `path/to/file.py:callable`; it runs when it is measured."""

import ast
import difflib
import functools
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchbook.machine import identity
from benchbook.measuring import failures

FORMS = "module:callable, such as torchvision.models:resnet18, or path/to/file.py:callable"
HINT = "install packages that the lock lacks from a file: make setup EXTRAS=my-requirements.txt"
NAMED = ("network", "example", "loss")  # parameters that name a callable
MOST_NAMED = 8  # callables of a module that an error lists
MOST_PRINTED = 100_000  # characters of a process's output that are kept
_LEFT: dict[int, int] = {}  # bytes left to pass on, by file descriptor
# Code that may define names which do not occur in the module's source.
DYNAMIC_NAMES = r"^def __getattr__|sys\.modules\[__name__\]|globals\(\)\[|^from \w[\w.]* import \*"


class Misfit(ValueError):
    """Your network, example or loss does not fit; the message says which, and what is allowed."""


@dataclass
class Capped:
    """A stream that passes on only the first MOST_PRINTED characters, so that an executed notebook stays small."""

    stream: Any
    left: int = MOST_PRINTED

    def write(self, text: str) -> int:
        """Pass on the characters left of the limit, and a note when it is reached."""
        if self.left > 0:
            self.stream.write(text[: self.left])
            self.left -= len(text)
            if self.left <= 0:
                self.stream.write(f"\n[only the first {MOST_PRINTED:,} characters are kept]\n")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def start() -> None:
    """Begin a run in a kernel: your files run again, and only the beginning of their output is kept."""
    _run.cache_clear()
    streams = (each.stream if isinstance(each, Capped) else each for each in (sys.stdout, sys.stderr))
    sys.stdout, sys.stderr = map(Capped, streams)
    for descriptor in (1, 2):
        cap(descriptor)


def cap(descriptor: int) -> None:
    """From now on, pass on only the first MOST_PRINTED bytes that C code and child processes write to a descriptor."""
    is_capped = descriptor in _LEFT
    _LEFT[descriptor] = MOST_PRINTED
    if is_capped:
        return
    reader, writer = os.pipe()
    target = os.dup(descriptor)
    os.dup2(writer, descriptor)
    os.close(writer)

    def pass_on() -> None:
        while written := os.read(reader, 2**16):
            os.write(target, written[: _LEFT[descriptor]])
            _LEFT[descriptor] = max(0, _LEFT[descriptor] - len(written))

    threading.Thread(target=pass_on, daemon=True).start()


def resolve(name: str, what: str) -> Callable:
    """Return a callable by its name. Its module is imported, or its file run, only once.

    Args:
        name: one of FORMS.
        what: the parameter with the name, for errors.

    Raises:
        ValueError: no such file, module or callable; the message lists the callables there are.
    """
    place, attribute = find(name, what)
    with named_in_errors(f"{what} {name!r}: {Path(place).name}"):
        module = _run(place) if isinstance(place, Path) else importlib.import_module(place)
    value = getattr(module, attribute, None)
    if not callable(value):
        own = [key for key, each in vars(module).items() if callable(each) and not key.startswith("_")]
        state = "is not callable" if hasattr(module, attribute) else "is not in it"
        raise ValueError(f"{what} {name!r}: {attribute} {state}; it has {_nearest(attribute, own)}")
    return value


def check(name: str, what: str) -> None:
    """Refuse a name that cannot be resolved, judged by the source alone: nothing is imported or run.

    Raises:
        ValueError: no such package or file, a file that is not Python, or a name that the source does not contain.
    """
    place, attribute = find(name, what)
    if isinstance(place, Path):
        source = place.read_bytes()
        try:
            ast.parse(source)
        except (SyntaxError, ValueError) as error:  # ValueError: the file has a zero byte
            line = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else error
            raise ValueError(f"{what} {name!r}: the file is not Python: {line}") from error
        texts = [source.decode(errors="replace")]
    else:
        texts = _sources(place, what, name)
    if not texts or re.search(DYNAMIC_NAMES, texts[0], re.MULTILINE):
        return
    if not any(re.search(rf"\b{attribute}\b", text) for text in texts):
        own = [word for text in texts for word in re.findall(r"^(?:def|class) ([A-Za-z]\w*)", text, re.MULTILINE)]
        raise ValueError(f"{what} {name!r}: {attribute} is not in it; it has {_nearest(attribute, own)}")


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
    except Exception as error:
        kind = type(error).__name__
        if failures.status_of(kind, str(error)) == "out_of_memory":
            raise
        hint = f"; {HINT}" if isinstance(error, ImportError) else ""
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
    if not (is_file or all(map(str.isidentifier, place.split(".")))) or not attribute.isidentifier():
        raise ValueError(f"{what} {name!r}; allowed: {FORMS}")
    if not is_file:
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        return place, attribute
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"{what} {name!r}: {place} is not a file; allowed: {FORMS}")
    return path, attribute


def sources(name: str, what: str) -> list[str]:
    """Return the texts in which a callable may be defined: its file's, or its module's and those of its package."""
    place, _ = find(name, what)
    return [place.read_text()] if isinstance(place, Path) else _sources(place, what, name)


def _sources(place: str, what: str, name: str) -> list[str]:
    """Return a module's source, and for a package within a package the sources in it; empty if they are unknown.

    Raises:
        ValueError: no such package.
    """
    package, *parts = place.split(".")
    spec = importlib.util.find_spec(package)  # for a submodule, this would import the package
    if spec is None:
        raise ValueError(f"{what} {name!r}: no module named {package!r}; {HINT}")
    path = Path(spec.origin or [*spec.submodule_search_locations, "."][0], "" if spec.origin else "__init__.py")
    for part in parts:
        folder = path.parent / part
        path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    if path.suffix != ".py" or not path.is_file():
        return []
    inside = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" and parts else []
    return [file.read_text(errors="replace") for file in [path, *inside]]


def _nearest(wanted: str, names: list[str]) -> str:
    """Return the names most similar to the wanted one, as a list in words."""
    nearest = difflib.get_close_matches(wanted, dict.fromkeys(names), n=MOST_NAMED, cutoff=0.0)
    return ", ".join(nearest) + (" and others" if len(names) > MOST_NAMED else "") or "none"


@functools.cache
def _run(path: Path) -> Any:
    """Return the module of a file, which runs once per run of the notebook: some files cannot run twice."""
    if str(path.parent) not in sys.path:  # for the file's imports from its folder
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
