"""Sites of this computer's own, for what is downloaded."""

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word; below a folder `broken` only half of each, so that the
    connection breaks off."""

    def log_message(self, *words) -> None:
        """Say nothing."""

    def copyfile(self, source, output) -> None:
        """Send a file, or half of it."""
        content = source.read()
        output.write(content[: len(content) // 2] if "/broken/" in self.path else content)


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder's files by HTTP inside a `with` block; yield the address, which ends in a
    slash."""
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()
