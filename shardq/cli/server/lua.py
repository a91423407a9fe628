"""`shardq server lua`: the text that Redis runs for a verb, and which of shardq's libraries a server has.

It loads them, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardq.cli.exits import NothingThere, UsageError
from shardq.cli.flags import add_sure
from shardq.cli.nodes import NodeRow, driver_for, nodes_of
from shardq.cli.parsing import Args, argument, command, takes
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.clock import SystemClock
from shardq.ops.operate.libraries import LoadedLibrary, load_library, loaded_libraries, remove_library
from shardq.protocol import scripts

ABOUT = """WHAT is a verb, such as read: prints what Redis runs for it, each line with its file and number. Or it is
list: shows shardq's libraries of functions on each node of the server, and which of them is this version's. Or it is
load: loads this version's, as each client does that may; run it before an update where only a user of the role loader
may. Or it is clean: removes those of other versions."""

EXAMPLES = """  shardq server lua read
  shardq server lua list
  shardq server lua load --url redis://loader@queue.example:6379
  shardq server lua clean --yes"""

COLUMNS = ("node", "library", "functions", "version")


@command(ABOUT, EXAMPLES)
@argument("what", metavar="WHAT", help="a verb, or list, load or clean")
@takes(add_sure)
def run(args: Args, shell: Shell) -> None:
    """Print, list or clean."""
    if args.what not in ("list", "load", "clean"):
        _print(args.what, shell)
        return
    with driver_for(shell.url) as driver, nodes_of(shell.url, driver, shell.timeout) as nodes:
        if args.what == "load":
            if args.dry_run:
                shell.show(f"would load {scripts.library().name}", {"dry_run": True, "library": scripts.library().name})
            else:
                _load(nodes, shell)
            return
        found = [(node, each) for node in nodes for each in _loaded(node, shell.timeout)]
        if args.what == "list":
            _list(found, shell)
        else:
            _clean(found, args, shell)


def _print(verb: str, shell: Shell) -> None:
    if verb not in scripts.names():
        raise UsageError(
            f"there is no verb {verb!r}: it is one of {', '.join(scripts.names())}, or list, load or clean"
        )
    lines = scripts.library().listing(verb)
    width = max(len(line.place) for line in lines)
    for line in lines:
        file, _, number = line.place.partition(":")
        fields = {"file": file, "line": int(number or 0), "text": line.text}
        shell.show(f"{line.place:<{width}}  {line.text}".rstrip(), fields)


def _load(nodes: Sequence[NodeRow], shell: Shell) -> None:
    name = scripts.library().name
    for node in nodes:
        is_new = node.driver.run(load_library(SystemClock(), shell.timeout))
        at = f" on {node.name}" if node.name else ""
        text = f"loaded {name}{at}" if is_new else f"{name} was loaded already{at}"
        shell.show(text, {"node": node.name, "library": name, "loaded": is_new})


def _list(found: Sequence[tuple[NodeRow, LoadedLibrary]], shell: Shell) -> None:
    if shell.json:
        for node, each in found:
            fields = {"library": each.name, "functions": each.functions, "own": _is_own(each)}
            shell.show("", {"node": node.name} | fields)
        return
    rows = [
        (node.name, each.name, f"{each.functions:,}", "this one" if _is_own(each) else "another")
        for node, each in found
    ]
    draw(COLUMNS, rows, right=frozenset({"functions"}))


def _clean(found: Sequence[tuple[NodeRow, LoadedLibrary]], args: Args, shell: Shell) -> None:
    others = [(node, each) for node, each in found if not _is_own(each)]
    if not others:
        raise NothingThere("there is no library of another version")
    names = sorted({each.name for _, each in others})
    if not shell.goes_on(args, f"Remove what other versions loaded: {', '.join(names)}", {"libraries": names}):
        return
    clock = SystemClock()
    for node, each in others:
        if node.driver.run(remove_library(each.name, clock, shell.timeout)):
            at = f" from {node.name}" if node.name else ""
            shell.show(f"removed {each.name}{at}", {"node": node.name, "library": each.name})


def _loaded(node: NodeRow, timeout: float) -> list[LoadedLibrary]:
    return node.driver.run(loaded_libraries(SystemClock(), timeout))


def _is_own(library: LoadedLibrary) -> bool:
    return scripts.library().name == library.name
