"""Add the checkout's files outside the library to a wheel, which pyproject.toml cannot; see `layout.root`."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FILES = (
    "CITATION.cff",
    "docs/*.md",
    "docs/examples/*.py",
    "notebooks/*.ipynb",
    "notebooks/profiles/*.yaml",
    "outputs/examples/*.ipynb",
    "outputs/published/**/*.csv",
)


class Build(build_py):
    """Copies these files into the package `benchbook/project`, each at its path in the checkout."""

    def run(self) -> None:
        """Build the library, then add the files; an editable installation reads them where they are."""
        super().run()
        for path in [] if self.editable_mode else (path for pattern in FILES for path in Path().glob(pattern)):
            target = Path(self.build_lib, "benchbook", "project", path)
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(path), str(target))


setup(cmdclass={"build_py": Build})
