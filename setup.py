"""Add the checkout's files outside the library to sdist and wheel, which pyproject.toml cannot;
see `layout.root`."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

FILES = (
    "CITATION.cff",
    "docs/*.md",
    "docs/examples/*.py",
    "notebooks/*.ipynb",
    "notebooks/profiles/*.yaml",
    "notebooks/studies/*/*.*",
    "outputs/examples/*.ipynb",
    "outputs/published/**/*.csv",
)


def added() -> list[Path]:
    """Return these files; a pattern without a file would make a package that lacks them."""
    found = {pattern: sorted(Path().glob(pattern)) for pattern in FILES}
    if missing := [pattern for pattern, paths in found.items() if not paths]:
        raise FileNotFoundError(f"no file is called {', '.join(missing)}")
    return [path for paths in found.values() for path in paths]


class Source(sdist):
    """Adds these files, from which a wheel is built, to the archive of the sources."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy them with what setuptools found."""
        super().make_release_tree(base_dir, [*dict.fromkeys([*files, *map(str, added())])])


class Build(build_py):
    """Copies these files into the package `benchbook/project`, each at its path in the checkout."""

    def run(self) -> None:
        """Build the library, then add the files; an editable installation reads them where they
        are."""
        super().run()
        for path in [] if self.editable_mode else added():
            target = Path(self.build_lib, "benchbook", "project", path)
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(path), str(target))


setup(cmdclass={"build_py": Build, "sdist": Source})
