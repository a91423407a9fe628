"""The one table of flags: a flag of several commands has one name, one short form and one meaning, everywhere.

A command takes a flag of the table by `flag("tenant")`, and may add to its meaning, but not change it. A flag of its
own, by `argument`, may have no name that another command has, and no short form.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from shardq.cli.values import length, moment, number, numbers, pair, period, positive, time

Parser = argparse.ArgumentParser
DEFAULT_URL: Final = "redis://localhost:6379"
DEFAULT_TIMEOUT: Final = 5.0


class Flag(NamedTuple):
    """A flag's names, its meaning everywhere, and how `add_argument` takes it."""

    names: tuple[str, ...]
    meaning: str
    how: Mapping[str, Any]


def _flag(*names: str, means: str, **how: Any) -> Flag:
    return Flag(names, means, how)


def _switch(*names: str, means: str) -> Flag:
    return Flag(names, means, {"action": "store_true"})


FLAGS: Final[Mapping[str, Flag]] = {
    # of all
    "url": _flag("--url", metavar="URL", means=f"the server's URL ($SHARDQ_URL, or {DEFAULT_URL})"),
    "timeout": _flag(
        "--timeout", type=time, metavar="TIME", means=f"how long to try to reach Redis ({DEFAULT_TIMEOUT:g}s)"
    ),
    "json": _switch("--json", means="print JSON, one object per line"),
    # which, and how many
    "tenant": _flag("-t", "--tenant", metavar="KEY", means="the tenant: its shard key"),
    "limit": _flag("-n", "--limit", type=number(1), metavar="N", means="at most N"),
    "task": _flag("--task", metavar="TASK", means="the name of the task"),
    "error": _flag("--error", metavar="TEXT", means="the class of the last error, or a part of its text"),
    "reason": _flag("--reason", metavar="TEXT", means="the reason"),
    "older_than": _flag("--older-than", type=time, metavar="TIME", means="older than this"),
    "newer_than": _flag("--newer-than", type=time, metavar="TIME", means="newer than this"),
    "state": _flag("--state", metavar="STATE", means="the state"),
    "id": _flag("--id", dest="ids", action="append", default=[], metavar="ID", means="this one (repeatable)"),
    "queue": _flag("-q", "--queue", metavar="QUEUE", means="the queue's name"),
    "run_id": _flag("--run-id", metavar="ID", means="the id of this run (made from the files' names, sizes and times)"),
    "router": _flag(
        "--router", metavar="NAME", default="default", means="the router, a named set of bindings (default)"
    ),
    "user": _flag("--user", metavar="NAME", means="the user of Redis"),
    "all": _switch("--all", means="all of them"),
    "gone": _switch("--gone", means="those of queues that are gone"),
    # flags of all commands that look
    "watch": _flag(
        "-w", "--watch", type=period, nargs="?", const=2.0, metavar="TIME", means="look again every TIME (2s), until ^C"
    ),
    "times": _flag("--times", type=number(1), metavar="N", means="end after N looks"),
    "every": _flag("--every", type=time, metavar="TIME", means="again every TIME"),
    "since": _flag("--since", type=moment, metavar="WHEN", means="from then on: a date (UTC), or a TIME ago"),
    "before": _flag("--before", type=moment, metavar="WHEN", means="until then: a date (UTC), or a TIME ago"),
    "archive": _flag("--archive", metavar="DIR", means="read this archive, not the journals"),
    "html": _flag("--html", type=Path, metavar="FILE", means="write it as a page, too"),
    "follow": _switch("-f", "--follow", means="continue with new ones, until Ctrl-C"),
    "payloads": _switch("--payloads", means="show the payloads"),
    "role": _flag("--role", metavar="ROLE", means="the role"),
    # flags of all commands that change something
    "dry_run": _switch("--dry-run", means="say what would be done, and change nothing"),
    "yes": _switch("-y", "--yes", means="do not ask; needed where there is no terminal"),
    "by": _flag("--by", metavar="NAME", means="who asks for it (user@host)"),
    "note": _flag("--note", metavar="TEXT", default="", means="why, for the journal and for others"),
    "rate": _flag("--rate", type=positive, metavar="N", means="at most N a second"),
    "for": _flag("--for", dest="seconds", type=length, metavar="TIME", means="end it after TIME"),
    # of messages
    "as": _flag("--as", dest="form", choices=("bytes", "text", "json"), default="bytes", means="what it is (bytes)"),
    "lines": _switch("--lines", means="each line of stdin is a message"),
    "delay": _flag("--delay", type=time, metavar="TIME", means="deliver it no earlier than in TIME"),
    "deadline": _flag("--deadline", type=time, metavar="TIME", means="do not deliver it later than in TIME"),
    "header": _flag("--header", type=pair, action="append", default=[], metavar="N=V", means="a header (repeatable)"),
    "wait": _flag("--wait", type=time, metavar="TIME", means="wait for it as long as TIME"),
    "create": _switch("--create", means="create the queue if it does not exist"),
    # flags of commands that serve
    "listen": _flag("--listen", metavar="HOST:PORT", means="where to listen; also unix:PATH, or port 0 for any"),
    "tls_cert": _flag("--tls-cert", type=Path, metavar="FILE", means="the certificate chain, as PEM"),
    "tls_key": _flag("--tls-key", type=Path, metavar="FILE", means="its key, as PEM"),
    "client_ca": _flag(
        "--client-ca", type=Path, metavar="FILE", means="demand certificates that this authority signed"
    ),
    # settings, and flags of commands that run
    "names": _flag("--names", metavar="FILE", means="a file with shard keys, one per line; - is stdin"),
    "max_overlap": _flag("--max-overlap", type=number(0), metavar="K", means="streams that any two may share"),
    "durability": _flag("--durability", default="none", metavar="LEVEL", means="the durability level (none)"),
    "grace": _flag("--grace", type=time, default=25.0, metavar="TIME", means="time to finish at the end (25s)"),
    "tenants": _flag("--tenants", type=number(1), metavar="T", means="number of tenants"),
    "within": _flag("--within", type=length, metavar="TIME", means="how soon jobs are to begin"),
    "objective": _flag("--objective", type=positive, metavar="PERCENT", means="share of jobs to begin in time"),
    "workers": _flag(
        "--workers", type=numbers(1), metavar="N,...", means="numbers of workers, all the time; each an alternative"
    ),
    "slots": _flag("--slots", type=number(1), metavar="N", means="slots of each worker"),
    "setting": _flag(
        "--setting", type=pair, action="append", default=[], metavar="N=V", means="a setting (repeatable)"
    ),
    "weight": _flag("--weight", type=pair, action="append", default=[], metavar="KEY=N", means="a weight (repeatable)"),
    "limits": _flag(
        "--limits", type=pair, action="append", default=[], metavar="KEY=N=V,...", means="a key's limits (repeatable)"
    ),
    "alternatives": _flag("--alternatives", type=Path, metavar="FILE", means="tables of alternatives by name, as TOML"),
    "plot": _flag("--plot", type=Path, metavar="FILE", means="draw it as PNG or SVG (needs matplotlib)"),
    "streams": _flag("--streams", type=number(1), metavar="N", means="number of streams"),
    "per_shard": _flag("--per-shard", type=number(1), metavar="M", means="streams per shard"),
}
"""By the name under which commands take them."""

FILTER: Final = ("tenant", "task", "error", "reason", "older_than", "newer_than")
"""Flags that narrow an action down; `--state` stands beside them where a command has several states."""
CHANGE: Final = ("dry_run", "yes", "by", "note")
"""Flags of all commands that change something."""


def add_flag(parser: Any, name: str, more: str = "", **how: Any) -> argparse.Action:
    """Add the flag called *name* to a parser or a group; *more* is said behind its meaning."""
    names, meaning, usual = FLAGS[name]
    settings = dict(usual) | how
    action: argparse.Action = parser.add_argument(*names, help=f"{meaning}{more}", **settings)
    vars(action)["flag"] = name
    return action


def add_filter(parser: Parser) -> None:
    """Add what narrows an action down."""
    group = parser.add_argument_group("which (all that is said must hold)")
    for name in FILTER:
        add_flag(group, name, ": a part of why it failed is enough" if name == "reason" else "")


def add_change(parser: Parser) -> None:
    """Add what all that change take."""
    for name in CHANGE:
        add_flag(parser, name)


def add_sure(parser: Parser) -> None:
    """Add the flags of commands whose changes nobody records with a name."""
    for name in ("dry_run", "yes"):
        add_flag(parser, name)
