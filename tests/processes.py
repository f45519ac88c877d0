"""Commands of this project, started as a user starts them."""

import os
import subprocess
import sys
from pathlib import Path


def study(outputs: Path, *options: str, **settings: str) -> subprocess.Popen:
    """Start a study as `make study` does, with no data set on the machine."""
    environment = os.environ | {"BENCHBOOK_OUTPUTS": str(outputs), "PYTHONUNBUFFERED": "1"} | settings
    command = [sys.executable, "-m", "benchbook.cli", "study", *options]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
