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
MOST_PRINTED = 100_000  # characters that a process keeps of what it prints
_LEFT: dict[int, int] = {}  # bytes that are still passed on of what is written to a descriptor
# What gives a module names that its source does not spell.
UNSPELT = r"^def __getattr__|sys\.modules\[__name__\]|globals\(\)\[|^from \w[\w.]* import \*"


class Misfit(ValueError):
    """What the user named does not fit what it is used for; the message says which, and what is allowed."""


@dataclass
class Capped:
    """A stream that passes on the first MOST_PRINTED characters: an executed notebook keeps all it is given."""

    stream: Any
    left: int = MOST_PRINTED

    def write(self, text: str) -> int:
        """Pass a text on as far as there is room; where there no longer is, say so once."""
        if self.left > 0:
            self.stream.write(text[: self.left])
            self.left -= len(text)
            if self.left <= 0:
                self.stream.write(f"\n[only the first {MOST_PRINTED:,} characters are kept]\n")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def start() -> None:
    """Begin a run in a kernel: files are run again, and of what they print the beginning is kept."""
    _run.cache_clear()
    streams = (each.stream if isinstance(each, Capped) else each for each in (sys.stdout, sys.stderr))
    sys.stdout, sys.stderr = map(Capped, streams)
    for descriptor in (1, 2):
        cap(descriptor)


def cap(descriptor: int) -> None:
    """Pass on the first MOST_PRINTED bytes of what C code and other processes write to a descriptor, from now on."""
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
    """Return a callable by its name; its module is imported, or its file run, once.

    Args:
        name: see the module.
        what: which parameter holds the name, for an error.

    Raises:
        ValueError: no such file, module or callable; the message says what there is.
    """
    place, attribute = find(name, what)
    with blamed(f"{what} {name!r}: {Path(place).name}"):
        module = _run(place) if isinstance(place, Path) else importlib.import_module(place)
    value = getattr(module, attribute, None)
    if not callable(value):
        own = [key for key, each in vars(module).items() if callable(each) and not key.startswith("_")]
        state = "is no callable" if hasattr(module, attribute) else "is not in it"
        raise ValueError(f"{what} {name!r}: {attribute} {state}; it has {_nearest(attribute, own)}")
    return value


def check(name: str, what: str) -> None:
    """Refuse a name that cannot be resolved, as far as the source says so: nothing is imported or run.

    Raises:
        ValueError: no such package or file, a file that is not Python, or a name that its source never mentions.
    """
    place, attribute = find(name, what)
    if isinstance(place, Path):
        source = place.read_bytes()
        try:
            ast.parse(source)
        except (SyntaxError, ValueError) as error:  # ValueError: a zero among its bytes
            line = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else error
            raise ValueError(f"{what} {name!r}: the file is not Python: {line}") from error
        texts = [source.decode(errors="replace")]
    else:
        texts = _sources(place, what, name)
    if not texts or re.search(UNSPELT, texts[0], re.MULTILINE):
        return
    if not any(re.search(rf"\b{attribute}\b", text) for text in texts):
        own = [word for text in texts for word in re.findall(r"^(?:def|class) ([A-Za-z]\w*)", text, re.MULTILINE)]
        raise ValueError(f"{what} {name!r}: {attribute} is not in it; it has {_nearest(attribute, own)}")


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Name what of the user's own code raised an error; one for want of memory stays what it is.

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
        if failures.status_of(kind, str(error)) == "out_of_memory":
            raise
        hint = f"; {HINT}" if isinstance(error, ImportError) else ""
        raise Misfit(f"{what} raised {kind}: {failures.last_line(str(error))}{hint}") from error


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
    """Return name, digest and commit of the files that hold the callables, which is what a manifest keeps of them.

    Args:
        names: callables by parameter; empty ones and those of modules are left out.

    Raises:
        ValueError: a file that is not there.
    """
    described = {}
    for what, name in names.items():
        path = find(name, what)[0] if name else ""
        if isinstance(path, Path):
            digest, commit = hashlib.sha256(path.read_bytes()).hexdigest(), identity.revision(path.parent, path.name)
            described[what] = {"file": path.name, "sha256": digest, "commit": commit or None}
    return described


def find(name: str, what: str) -> tuple[Path | str, str]:
    """Return the file or the module that a name names, and what in it; modules of the present folder can be imported.

    Raises:
        ValueError: it has neither of FORMS, or there is no such file.
    """
    place, _, attribute = name.rpartition(":")
    is_file = place.endswith(".py")
    if not (is_file or all(map(str.isidentifier, place.split(".")))) or not attribute.isidentifier():
        raise ValueError(f"{what} {name!r}; allowed: {FORMS}")
    if not is_file:
        if str(Path.cwd()) not in sys.path:  # after all others
            sys.path.append(str(Path.cwd()))
        return place, attribute
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"{what} {name!r}: {place} is not a file; allowed: {FORMS}")
    return path, attribute


def _sources(place: str, what: str, name: str) -> list[str]:
    """Return a module's source, then those of the modules beside it where it is a package; none where unknown.

    Raises:
        ValueError: no such package.
    """
    package, *parts = place.split(".")
    spec = importlib.util.find_spec(package)  # which imports nothing, as one of a module inside would
    if spec is None:
        raise ValueError(f"{what} {name!r}: no module named {package!r}; {HINT}")
    path = Path(spec.origin or [*spec.submodule_search_locations, "."][0], "" if spec.origin else "__init__.py")
    for part in parts:
        folder = path.parent / part
        path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    if path.suffix != ".py" or not path.is_file():
        return []
    beside = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" and parts else []
    return [file.read_text(errors="replace") for file in [path, *beside]]


def _nearest(wanted: str, names: list[str]) -> str:
    """Return the names that are most like what was wanted."""
    listed = difflib.get_close_matches(wanted, dict.fromkeys(names), n=MOST_NAMED, cutoff=0.0)
    return ", ".join(listed) + (" and others" if len(names) > MOST_NAMED else "") or "none"


@functools.cache
def _run(path: Path) -> Any:
    """Return the module that a file is: a change of it belongs to the next run, and a second run may be refused."""
    if str(path.parent) not in sys.path:  # for what the file imports from beside it
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
