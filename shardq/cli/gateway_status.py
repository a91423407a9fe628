"""The lines of `shardq serve gateway --status`: tokens, and the addresses of those who have shown none."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from shardq.cli.output import say
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.text import json_line
from shardq.errors import ConfigError

TOKENS = ("token", "connections", "received", "stored", "refused", "dropped", "throttled", "held")
ADDRESSES = ("address", "connections", "strangers", "denied", "turned away")


def show_status(path: Path, shell: Shell) -> None:
    """Ask the gateway at *path*, and print what it says. ConfigError if there is none."""
    report = _asked(path, shell.timeout)
    if shell.json:
        say(json_line(report))
        return
    say("ready: messages can be stored" if report["ready"] else "NOT READY: nothing can be stored")
    if report["tokens"]:
        say()
        draw(TOKENS, [_row_of(*each) for each in report["tokens"].items()], right=frozenset(TOKENS[1:]))
    if report["addresses"]:
        say()
        draw(ADDRESSES, [_address(*each) for each in report["addresses"].items()], right=frozenset(ADDRESSES[1:]))


def _asked(path: Path, timeout: float) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(timeout)
        try:
            asked.connect(str(path))
            with asked.makefile("rb") as file:
                found: dict[str, Any] = json.loads(file.read())
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"no gateway answers at {path}: give the path of its --status-socket, as its user ({error})"
            ) from None
    return found


def _row_of(name: str, token: dict[str, Any]) -> tuple[str, ...]:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(token["refused_by"].items()))
    counts = [f"{token[each]:,}" for each in ("open", "received", "stored")]
    return (
        name,
        *counts,
        reasons or "0",
        f"{token['dropped']:,}",
        f"{token['throttled']:,.1f} s",
        f"{token['held']:,} B",
    )


def _address(name: str, address: dict[str, Any]) -> tuple[str, ...]:
    return (name, *(f"{address[each]:,}" for each in ("connections", "strangers", "denied", "turned_away")))
