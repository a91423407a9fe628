"""The pages that the code writes: commands, metrics and errors, from the tables that the code itself uses.

What a person says of an error stands in the table of docs/errors.md, which tests hold complete.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from shardq import errors
from shardq.cli.program import parser
from shardq.telemetry.instruments import INSTRUMENTS, LABELS, Instrument
from tests.house.site.staging import DOCS, rewritten
from tests.house.test_paths import section
from tests.surface import error_classes, subparsers

SHARED: Final = re.compile(r"^(?:options of every command|exit codes):\n(?:.*\n)*?\n", re.MULTILINE)
"""What the help of each command says. The page says it once."""
ERRORS: Final = "## What does an error mean?"
"""The heading of the table in docs/errors.md."""
ROW: Final = re.compile(r"^\| (`[^|]*) \| (.*) \|$", re.MULTILINE)


def pages(source: str) -> Mapping[str, str]:
    """Return the pages by their names below reference/. What is not on the site is at the *source*."""
    said = re.sub(r"\]\((?=#)", "](errors.md", rewritten(DOCS / "errors.md", source))
    said = re.sub(r"\]\((?!https?:)", "](../", said)
    return {
        "commands.md": commands(),
        "metrics.md": metrics(),
        "errors.md": error_page(said),
    }


def told(page: str, heading: str) -> dict[str, str]:
    """What the table below a heading says of names, by the name in the first column: the other columns."""
    return {name: rest for cell, rest in ROW.findall(section(page, heading)) for name in re.findall(r"`([^`]+)`", cell)}


# --- commands --------------------------------------------------------------------------------------------------


def commands() -> str:
    """The help of each command."""
    top = parser()
    shared = "".join(SHARED.findall(f"{subparsers(top)['stats'].format_help()}\n")).strip()
    head = f"# Command line\n\n`shardq COMMAND --help` says the same.\n\n```text\n{shared}\n```\n"
    return head + "".join(_commands(top, "shardq"))


def _commands(top: argparse.ArgumentParser, prefix: str) -> Iterator[str]:
    for name, each in subparsers(top).items():
        words = f"{prefix} {name}"
        text = SHARED.sub("", f"{each.format_help()}\n").strip()
        yield f"\n## {words}\n\n```text\n{text}\n```\n"
        yield from _commands(each, words)


# --- metrics ---------------------------------------------------------------------------------------------------


def metrics() -> str:
    """The table of all that is measured."""
    head = (
        "# Metrics\n\n[How a process tells them](../telemetry.md), and [what those of a queue mean](../metrics.md).\n\n"
    )
    head += "| Prometheus | OpenTelemetry | kind, unit | labels | what |\n|---|---|---|---|---|\n"
    return head + "".join(_metric(each) for each in sorted(INSTRUMENTS, key=lambda each: each.text))


def _metric(each: Instrument) -> str:
    labels = ", ".join(f"`{LABELS[name]}`" for name in each.labels if name in LABELS)
    return f"| `{each.text}` | `{each.name}` | {each.kind}, {each.unit} | {labels} | {each.about} |\n"


# --- errors ----------------------------------------------------------------------------------------------------


def error_page(page: str) -> str:
    """The tree of errors, and each with what it means and what to do."""
    said = told(page, ERRORS)
    tree = (errors.__doc__ or "").partition("::\n\n")[2]
    head = f"# Errors\n\n```text\n{inspect.cleandoc(tree)}\n```\n"
    return head + "".join(_error(name, each, said.get(name)) for name, each in error_classes().items())


def _error(name: str, each: type, said: str | None) -> str:
    effect, _, advice = (said or "").partition(" | ")
    table = f"\n- Did the call take effect? {effect}\n- What to do: {advice}\n" if said else ""
    return f"\n## {name}\n\n{inspect.cleandoc(each.__doc__ or '')}\n{table}"


def write(folder: Path, source: str) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(source).items():
        (folder / name).write_text(text, encoding="utf-8")
