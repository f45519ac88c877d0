"""What tests run in a process of its own: commands of this project, and cases of one framework of Keras."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

FRAMEWORKS = [name for name in ("tensorflow", "jax") if importlib.util.find_spec(name)]
# XLA compiles tests' networks in half the time if it may compile them badly.
COMPILE_BADLY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def study(outputs: Path, *options: str, **settings: str) -> subprocess.Popen:
    """Start a study as `make study` does, with no data set on the machine."""
    return subprocess.Popen(
        [sys.executable, "-m", "benchbook.cli", "study", *options],
        env=_environment() | {"BENCHBOOK_OUTPUTS": str(outputs), "PYTHONUNBUFFERED": "1"} | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run_cases(file: str, framework: str, *options: str) -> str:
    """Run a file of cases, with options of pytest's; return what pytest printed."""
    environment = _environment() | {"BENCHBOOK_TEST_FRAMEWORK": framework}
    environment.pop("KERAS_BACKEND", None)
    path = str(Path(__file__).parent / file)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", path, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _environment() -> dict[str, str]:
    return os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {COMPILE_BADLY}".strip()}
