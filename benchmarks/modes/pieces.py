"""What a hot call does: the commands that it runs, and the tables and functions that it makes.

Tables and functions are counted by a copy of this checkout whose library counts them. Those that Redis makes by itself,
for KEYS, ARGV and replies, are not among them.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.modes.contest import PRESENT, Contender, Contest
from benchmarks.modes.mode import Mode
from benchmarks.modes.probes import FUNCTIONS, TABLES
from benchmarks.report import Table
from benchmarks.settings import Place
from benchmarks.workers.environments import ROOT

COLUMNS: Final = ("mode", "verb", "commands", "tables", "functions", "which commands")
COUNTERS: Final = """
local tables_made = 0
local functions_made = 0

local function made_table(made)
  tables_made = tables_made + 1
  return made
end

local function made_record()
  tables_made = tables_made + 1
  return true
end

local function made_function()
  functions_made = functions_made + 1
  return true
end
"""
COUNTED: Final = """
-- @verb pieces | no-writes: how many tables and functions all calls have made so far
function verbs.pieces(KEYS)
  return {tables_made, functions_made}
end
"""
_MADE: Final = re.compile(
    r"""--.*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|"""
    r"""(?P<record>\bnew_\w+\{)|(?P<table>\{)|\b(?P<function>function *\(|gmatch\()"""
)


def counting(text: str) -> str:
    """The Lua *text*, which counts the tables and functions that it makes; iterators of gmatch are functions, too."""

    def counted(found: re.Match[str]) -> str:
        if found["record"]:
            return f"made_record() and {found[0]}"
        if found["table"]:
            return "made_table{"
        return f"made_function() and {found[0]}" if found["function"] else found[0]

    return _MADE.sub(counted, text)


@contextlib.contextmanager
def counting_tree() -> Iterator[Path]:
    """A copy of this checkout's package, whose library counts."""
    with tempfile.TemporaryDirectory(prefix="shardq-pieces-") as folder:
        tree = Path(folder)
        for part in ("shardq", "lua"):
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (tree / "lua").glob("*.lua"):
            path.write_text(counting(path.read_text()))
        base, order = (tree / "lua" / name for name in ("base.lua", "order.txt"))
        base.write_text(COUNTERS + base.read_text())
        (tree / "lua" / "pieces.lua").write_text(COUNTED)
        order.write_text(f"{order.read_text()}pieces\n")
        yield tree


def run(where: Place, modes: Sequence[Mode]) -> Iterator[Table]:
    """A table of single calls, and one of batches."""
    with counting_tree() as tree, contextlib.ExitStack() as stack:
        ground = Contest(where.settings, [Contender(PRESENT, tree)], stack)
        for batch in dict.fromkeys((1, where.settings.batch)):
            there = [mode for mode in modes if mode.bounds(batch) and not (mode.bare or mode.user)]
            found = {mode.name: ground.pieces(mode, batch) for mode in there}
            rows = [_row(mode, verb, each) for mode, verbs in found.items() for verb, each in verbs.items()]
            title = f"What a call does: {'one message' if batch == 1 else f'a batch of {batch}'}"
            yield Table(f"modes-pieces-{batch}", title, where.described("one round"), COLUMNS, rows, data=found)


def _row(mode: str, verb: str, found: Mapping[str, float]) -> tuple[str, ...]:
    commands = {name: amount for name, amount in found.items() if name not in (TABLES, FUNCTIONS)}
    which = ", ".join(f"{name} {amount:.3g}" for name, amount in sorted(commands.items()))
    amounts = (sum(commands.values()), found.get(TABLES, 0), found.get(FUNCTIONS, 0))
    return (mode, verb, *(f"{amount:.1f}" for amount in amounts), which)
