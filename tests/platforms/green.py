"""Replace what blocks by what a library of green threads has; then run the module that is named as a program."""

from __future__ import annotations

import runpy
import sys


def replace(library: str) -> None:
    """As a program does that runs on *library*, before it imports anything else."""
    if library == "eventlet":
        import eventlet

        eventlet.monkey_patch()
    else:
        from gevent import monkey

        monkey.patch_all()


if __name__ == "__main__":
    replace(sys.argv[1])
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
