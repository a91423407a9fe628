"""`make demo`: producers, workers and an autoscaler on real input, in under a minute.

Every installed Python package is a tenant, and each of its source files is a job. An API server enqueues the jobs; one
tenant floods with 100 times as many. Several workers parse the files, and one of them is killed half-way. An autoscaler
prints the length of the queue and its oldest age. At the end there is a table per tenant, which is checked against the
files on disk. The exit code is 0 if each job was done exactly once, else 1.
"""

import argparse
import io
import signal
import sys

from rich.console import Console

from examples.demo.run import Demo
from examples.demo.show import Show
from shardq import ShardqError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--files", type=int, metavar="N", help="only so many files (all)")
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="worker processes (4)")
    args = parser.parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal or a pipe that is not UTF-8
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return Demo(Show(Console(highlight=False)), args.files, args.workers).run()
    except KeyboardInterrupt:
        return 130
    except ShardqError as error:
        print(f"FAILED: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
