"""`make demo`: one tenant floods a queue, and nobody else waits. Real input, in under a minute.

Every installed Python package is a tenant, and its source files are the jobs. An API server learns what the workers can
do on this machine. It lets one tenant flood, and writes the others' jobs at a pace that fits: a slow machine comes to
fewer files. Several workers parse them, and one is killed half-way. A table says how long jobs waited. The exit code is
0 if the others waited far less than the flood, and each job was done exactly once, else 1.
"""

import argparse
import io
import signal
import sys

from rich.console import Console

from examples.demo.show import Show


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--files", type=int, metavar="N", help="only so many files (all)")
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="worker processes (4)")
    parser.add_argument("--dashboard", action="store_true", help="with an address to open, until Ctrl-C")
    args = parser.parse_args()
    if args.workers < 2:
        parser.error("--workers must be at least 2: one of them is killed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal or a pipe that is not UTF-8
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    show = Show(Console(highlight=False))
    show.title("shardq: one tenant floods a queue, and nobody else waits")
    from examples.demo.run import Demo  # behind the first line, since this takes longest until then
    from shardq import ShardqError

    try:
        return Demo(show, args.files, args.workers, dashboard=args.dashboard).run()
    except KeyboardInterrupt:
        return 130
    except ShardqError as error:
        print(f"FAILED: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
