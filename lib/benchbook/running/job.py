"""One job of the graph, `python -m benchbook.running.job POINT DONE`: a kernel of a point."""

import argparse
import json
import sys
from pathlib import Path

from benchbook.machine import contention, processes


def main() -> None:
    """Run one kernel of a point, as the Snakefile asks: POINT is its JSON, DONE the file to write last."""
    parser = argparse.ArgumentParser(description="Run one point of a study.")
    parser.add_argument("point", help="a point as JSON")
    parser.add_argument("done", type=Path, help="file written when the point has ended")
    parser.add_argument("--machine", default="", help="machine name")
    parser.add_argument("--kernel", type=int, help="which of the point's kernels this is, from 1; all by default")
    arguments = parser.parse_args()
    processes.stop_on_signals()
    begun = contention.begin()  # others are watched while this process imports pandas, half a second
    from benchbook.machine import identity
    from benchbook.running import execute
    from benchbook.running.profiles import Point
    from benchbook.running.progress import Line

    point = Point(**json.loads(arguments.point))
    line = Line(point, arguments.kernel)
    try:
        line.wait_until_calm(begun)
        statuses = execute.execute(point, identity.identify(arguments.machine).name, line.watch, arguments.kernel)
        arguments.done.parent.mkdir(parents=True, exist_ok=True)
        arguments.done.write_text(json.dumps({"statuses": statuses}) + "\n")
    except processes.Stopped as stop:
        line.end(["interrupted"])
        sys.exit(stop.status)
    line.end(statuses)


if __name__ == "__main__":
    main()
