"""All that shardq stores or sends for other processes: what it looks like, and where the number of its version stands.

A sample has rows of texts under the name of a noun. Its *shape* is that without what differs between two runs: each
number is a 0 there, and each nonce a *. Golden samples, one for each version, lie in tests/golden/formats.json.

Where a number has to be raised: readers that do not know a new version refuse it, or pass over it. An addition that
older versions pass over by themselves needs no other number in what is stored: it is counted here, as `additions`.
"""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib.resources import files
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf import descriptor_pb2

from shardq.datasink.messages import VERSION as WIRE_VERSION
from shardq.edge.file import make_tables
from shardq.edge.schema import SCHEMA
from shardq.jobs import folder, schema
from shardq.protocol import journal
from tests.upgrade.sources import ROOT
from tests.upgrade.stored import Stored, made, mail

GOLDEN: Final = ROOT / "tests" / "golden" / "formats.json"
MAKE: Final = "python -m tests.golden.make_formats"

NONCE: Final = re.compile(r"N{6,}[\w-]{2}|(?:34d){2,4}(?:34)?[0-9a-f]{2}")
"""How nonces look in samples: see `stored.known_nonces`."""
UNNUMBERED: Final = "0"
"""The version of what has no number of its own."""
Sample = Mapping[str, Stored]


class Format(NamedTuple):
    """A format: its number is stored `where` it says. `additions` counts what came to it since that number."""

    name: str
    where: str
    number: Callable[[], str]
    sample: Callable[[], Sample]
    additions: int = 0

    @property
    def version(self) -> str:
        """The name of its golden sample."""
        return f"{self.number()}+{self.additions}" if self.additions else self.number()


def queue() -> Sample:
    """Every key of a queue but the journal, which has a number of its own."""
    return {name: each for name, each in made().items() if re.match("plain |nested ", name) and "journal" not in name}


def queue_number() -> str:
    (epoch,) = (row[1] for row in made()["plain meta"]["rows"] if row[0] == "epoch")
    return str(epoch).partition(".")[0]


def entries() -> Sample:
    """The journals."""
    return {name: made()[name] for name in ("plain journal", "nested journal")}


def router() -> Sample:
    """Bindings of topics, and their changes."""
    return {name: each for name, each in made().items() if name.startswith("default ")}


def lines(**kinds: list[str]) -> Sample:
    """A sample of lines, by noun."""
    return {name: {"kind": "lines", "rows": [[each] for each in rows]} for name, rows in kinds.items()}


def calls() -> Sample:
    """The call of a task, as a payload."""
    call = mail.call(to="ada")
    return lines(
        msgpack=[msgspec.msgpack.encode(call).decode("latin-1")], json=[msgspec.json.encode(call).decode("latin-1")]
    )


def wire() -> Sample:
    """The fields of each message between edges and gateways."""
    found = descriptor_pb2.FileDescriptorSet.FromString(
        files("shardq.datasink").joinpath("shardq_edge.binpb").read_bytes()
    )
    return lines(
        **{
            kind.name: [f"{each.name} = field {each.number}, of type {each.type}" for each in kind.field]
            for file in found.file
            for kind in file.message_type
        }
    )


def spool() -> Sample:
    """The tables of an edge's spool."""
    with closing(sqlite3.connect(":memory:")) as db:
        make_tables(db)
        tables = [" ".join(sql.split()) for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL")]
    return lines(tables=tables)


def jobs() -> Sample:
    """The columns of the tables of jobs, and the file of a run."""
    tables = {name: [f"{each.name}: {each.type}" for each in getattr(schema, name)] for name in ("JOBS", "SETTINGS",
              "CAPACITY", "LOST", "OPEN")}  # fmt: skip
    return lines(run=[json.dumps(folder.FolderRun(7).fields())], **tables)


def archive() -> Sample:
    """The columns of Spark's tables, of which two are archived. (They are read as text, as PySpark may not be here.)"""
    found: dict[str, list[str]] = {}
    for each in ast.parse((ROOT / "shardq" / "spark" / "schema.py").read_text()).body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.value, ast.Dict) and isinstance(each.target, ast.Name):
            pairs = zip(each.value.keys, each.value.values, strict=True)
            found[each.target.id.strip("_").lower()] = [f"{ast.unparse(k or v)}: {ast.unparse(v)}" for k, v in pairs]
    return lines(journal=found["journal"], dead=found["dead"])


def nothing() -> str:
    return UNNUMBERED


FORMATS: Final = (
    Format("queue", "field `epoch` of a queue's `meta`; `new_epoch` writes it", queue_number, queue),
    Format("journal", "name of an entry's only field; lua/journal.lua writes it", journal.FORMAT.decode, entries),
    Format("bindings", "nowhere", nothing, router),
    Format("list of queues", "nowhere", nothing, lambda: {"queues": made()["shardq:queues"]}),
    Format("declared file", "nowhere", nothing, lambda: {"lines": made()["declared file"]}),
    Format("call of a task", "nowhere", nothing, calls),
    Format("wire of edges", "field `version` of each message", lambda: str(WIRE_VERSION), wire),
    Format("spool", "SQLite's `user_version`", lambda: str(SCHEMA), spool),
    Format("table of jobs", "`version` in runs/*.json", lambda: str(folder.VERSION), jobs),
    Format("archive", "column `version` of events", nothing, archive),
)


def golden() -> dict[str, dict[str, Sample]]:
    """The golden samples, by format and version: the newest one comes last."""
    found: dict[str, dict[str, Sample]] = {}
    for name, version, sample in json.loads(GOLDEN.read_text()):
        found.setdefault(name, {})[version] = sample
    return found


def shape(sample: Sample) -> dict[str, list[str]]:
    """What of a sample must not change: each kind of row once."""
    return {
        name: [each["kind"], *sorted({" -> ".join(map(spelled, row)) for row in each["rows"]})]
        for name, each in sorted(sample.items())
    }


def spelled(text: Any) -> str:
    """A text without its numbers and nonces."""
    return re.sub(r"\d+", "0", NONCE.sub("*", str(text)))


def complaint(each: Format, versions: Mapping[str, Sample]) -> str:
    """Say how a format differs from the golden sample of its version, and what to do; '' if it does not."""
    if each.version not in versions:
        return f"{each.name} has no golden sample of its version {each.version}: {MAKE}"
    before, now = shape(versions[each.version]), shape(each.sample())
    if before == now:
        return ""
    rows = [
        f"{sign} {noun}: {row}"
        for sign, some, others in (("-", before, now), ("+", now, before))
        for noun in some
        for row in some[noun]
        if row not in others.get(noun, [])
    ]
    told = f"{each.name} is not as its version {each.version} was. If older programs cannot read it, raise its number "
    todo = f"({each.where}); if they pass over what came to it, count that in `additions`. Then: {MAKE}"
    return "\n".join([told + todo, *rows])
