"""A second process that renders figures, which takes longer than drawing them.

It is no pool of `multiprocessing`, whose processes begin by running the script that made them once more: an
aggregation that somebody saved as a plain script would start itself without end.
"""

import pickle
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor

from benchbook import figures


class Painter:
    """Renders and writes figures while this process goes on, until it is closed.

    The process ends with the one that made it, however that ends: what it is asked stops then.
    """

    def __init__(self) -> None:
        command = [sys.executable, "-m", "benchbook.painter"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, **pipes, start_new_session=True)  # a Ctrl-C is not meant for it
        self._thread = ThreadPoolExecutor(1)

    def save(self, *content: object) -> Future[bytes]:
        """Do what `figures.save` does of the same arguments; return the PNG, once it is there.

        A figure has to be picklable: no lambda places or names its ticks.
        """
        return self._thread.submit(self._ask, content)

    def _ask(self, content: tuple) -> bytes:
        asked = pickle.dumps(content)
        try:
            self._process.stdin.write(asked)
            self._process.stdin.flush()
            return pickle.load(self._process.stdout)
        except (BrokenPipeError, EOFError):
            raise RuntimeError("the process that renders figures has failed; what it said stands above") from None

    def close(self) -> None:
        """Wait until all is written, and end the process."""
        self._thread.shutdown()
        self._process.communicate()


def main() -> None:
    """Save the figures that come through the standard input, until it ends."""
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    while asked.peek(1):
        pickle.dump(figures.save(*pickle.load(asked)), answers)
        answers.flush()


if __name__ == "__main__":
    main()
