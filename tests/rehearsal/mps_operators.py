"""Write which of torch's operators compute on MPS in the wheel that the Mac's lock names: `make
lock` runs this.

What a wheel's kernels were made from lies in it, as torchgen's native_functions.yaml: an
operator has a kernel of its own for MPS, or is composed of others for every device, or lacks
both and raises NotImplementedError.

Source: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/README.md
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).parent
TABLE = HERE / "mps_operators.txt"
LOCK = HERE.parent.parent / "requirements" / "arm64.txt"
FUNCTIONS = "torchgen/packaged/ATen/native/native_functions.yaml"
COMPOSED = {
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
}


def version() -> str:
    """Return the version of torch that the Mac's lock names."""
    return re.search(r"^torch==(\S+)", LOCK.read_text(), re.MULTILINE).group(1)


def computing(functions: list[dict]) -> list[str]:
    """Return the operators that compute on MPS, such as add.Tensor; those of a single form end
    in .default.

    Args:
        functions: as native_functions.yaml lists them.
    """
    by_name = {function["func"].partition("(")[0]: function for function in functions}
    names = [
        name
        for name, function in by_name.items()
        if ({"MPS"} | COMPOSED) & _kernels(function, by_name)
    ]
    made = [
        name.strip()
        for function in functions
        for name in function.get("autogen", "").split(",")
        if name.strip()
    ]
    return sorted(name if "." in name else f"{name}.default" for name in {*names, *made})


def _kernels(function: dict, by_name: dict[str, dict]) -> set[str]:
    if "structured_delegate" in function:
        return _kernels(by_name[function["structured_delegate"]], by_name)
    kernels = function.get("dispatch", {"CompositeImplicitAutograd": ""})
    return {name.strip() for names in kernels for name in names.split(",")}


def main() -> None:
    """Write the table from the locked wheel; the command line names uv."""
    with tempfile.TemporaryDirectory() as folder:
        place = [
            "--target",
            folder,
            "--python-platform",
            "aarch64-apple-darwin",
            "--python-version",
            "3.11",
        ]
        subprocess.run(
            [sys.argv[1], "pip", "install", "-q", "--no-deps", *place, f"torch=={version()}"],
            check=True,
        )
        functions = yaml.safe_load((Path(folder) / FUNCTIONS).read_text())
    lines = [f"# torch {version()} for macOS on Apple silicon", *computing(functions)]
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
