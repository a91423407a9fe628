"""The code of other versions: of a commit, out of the project's history; and of a made-up version after this one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PARTS: Final = ("shardq", "lua")
"""The folders that run: the library, and the sources of its scripts."""


class Edit(NamedTuple):
    """A change of a file: *old* stands in it once, and *new* takes its place."""

    path: str
    old: str
    new: str


NEXT: Final = (
    # The engine: its digest is another one, it keeps one more field of a queue, and events have one more part.
    Edit(
        "lua/state.lua",
        "  if q.counts then\n    for field, number in pairs(q.counts)",
        "  call('HINCRBY', meta, 'made_up', 1)\n  if q.counts then\n    for field, number in pairs(q.counts)",
    ),
    Edit("lua/journal.lua", "Journal.VERSION = '2'", "Journal.VERSION = '3'"),
    Edit("lua/journal.lua", "Journal.VERSION, text)", "Journal.VERSION, 'made up\\n' .. text)"),
    Edit(
        "shardq/protocol/journal.py",
        "        if len(fields) != 2 or fields[0] not in",
        '        if len(fields) == 2 and fields[0] == b"3":\n'
        '            fields = (FORMAT, fields[1].partition(b"\\n")[2])\n'
        "        if len(fields) != 2 or fields[0] not in",
    ),
    # The report of a worker says one thing more.
    Edit("shardq/protocol/beats.py", '|{spell_buckets(others)}"', '|{spell_buckets(others)}|new"'),
    # What edges and gateways send has one more field.
    Edit(
        "shardq/datasink/messages.py",
        "for _each in _SET.file:\n",
        "for _kind in _SET.file[0].message_type:\n"
        '    if _kind.name in {"Request", "Response", "ServiceMessage", "ClientInfo"}:\n'
        '        _kind.field.add(name="made_up", number=99, label=1, type=9)\n'
        "for _each in _SET.file:\n",
    ),
    Edit("shardq/edge/compose.py", "version=VERSION, message_id", 'version=VERSION, made_up="new", message_id'),
    Edit("shardq/edge/parcels.py", "Request(version=VERSION, batch", 'Request(version=VERSION, made_up="new", batch'),
    Edit("shardq/gateway/outbox.py", "(version=messages.VERSION)", '(version=messages.VERSION, made_up="new")'),
    # A spool has one more table.
    Edit("shardq/edge/schema.py", "SCHEMA: Final = 2", "SCHEMA: Final = 3"),
    Edit("shardq/edge/schema.py", "    MESSAGES,\n", '    MESSAGES,\n    "CREATE TABLE made_up (x INTEGER)",\n'),
    Edit(
        "shardq/edge/file.py",
        "        elif version == 1 and",
        "        elif (version, application) == (2, APPLICATION):\n"
        '            self.db.execute("CREATE TABLE made_up (x INTEGER)")\n'
        "            sign(self.db)\n"
        "        elif version == 1 and",
    ),
)
"""What the made-up version changes: something in each format that lies in Redis, in a file, or on a wire."""


def code_of(commit: str, folder: Path) -> Path:
    """Put the library as it was at a commit, with the sources of its scripts, into a folder."""
    archive = subprocess.run(["git", "-C", ROOT, "archive", commit, *PARTS], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder


def next_code(folder: Path) -> Path:
    """Put the library as it is now into a folder, with the changes of the made-up version."""
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for path, old, new in NEXT:
        text = (folder / path).read_text()
        assert text.count(old) == 1, f"{path} has {old!r} no more, or twice: let tests/upgrade/sources.py follow"
        (folder / path).write_text(text.replace(old, new))
    return folder


def running(code: Path) -> Mapping[str, str]:
    """The environment of a process that runs this code. The tests that it imports are today's."""
    return {**os.environ, "PYTHONPATH": f"{code}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1", "NO_COLOR": "1"}
