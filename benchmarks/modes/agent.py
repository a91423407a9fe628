"""The process that runs modes: `python -m benchmarks.modes.agent TREE`, with the `shardq` of that checkout.

It obeys lines of JSON on its standard input, an `Order` each, and answers each with a line of JSON: what was spent by
verb, or why the mode failed.
"""

from __future__ import annotations

import gc
import json
import sys
from importlib import import_module
from pathlib import Path


def use(tree: str) -> None:
    """Import `shardq` from that checkout; all other modules come from this one."""
    sys.path.insert(0, tree)
    package = import_module("shardq")
    sys.path.remove(tree)
    assert Path(str(package.__file__)).is_relative_to(tree), f"shardq is not that of {tree}"


def main(tree: str) -> None:
    use(tree)
    turn = import_module("benchmarks.modes.turn")  # it imports shardq
    for line in sys.stdin:
        gc.collect()
        try:
            answer = {"spent": turn.take(turn.Order(**json.loads(line)))}
        except Exception as error:  # noqa: BLE001 # the other modes go on
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
