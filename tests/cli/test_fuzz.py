"""Every command with whatever its options and words are given: a documented exit code, few lines, no traceback."""

from __future__ import annotations

import argparse
import random
import re
from pathlib import Path
from typing import Final

import pytest

from shardq import Queue
from shardq.cli import exits
from tests.cli.conftest import Command
from tests.selection import SOAK
from tests.surface import commands

RUNS: Final = 5_000 if SOAK else 150
UNENDING: Final = frozenset({"edge run", "embedded", "pipeline", "worker"})
"""Commands that run until they are ended, or need Spark. What workers check is called by itself."""

NOWHERE: Final = "--listen=203.0.113.1:1"
"""What is said to each command that serves: no machine has this address, so it ends once it has checked the others."""

ENDLESS: Final = frozenset(
    {"--watch", "--follow", "--every", "--times", "--wait", "--help", "-h", "--version", "--check"}
)
"""Options with which a command goes on, or only says what it is, or computes for long."""

CODES: Final = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
MAX_LINES: Final = 40
"""Of an error: argparse shows how the command is used."""

SECRET: Final = "hush-4711"
WORDS: Final = (
    "", " ", "-", "--", "-1", "0", "1", "nan", "inf", "-inf", "1e400", "9" * 5_000, "0x10", "\u0663", "true", "jobs",
    "t", "\x1b[31mred", "a\nb", "a\tb", "\u202eb", "\udcff", "\ufeff", "x" * 60_000, "a=b", "=", "a=", "a=nan",
    "rate=1", "/", "/dev/null", "/proc/self/mem", "..", "%s%n", "{0.__class__}", "$(id)", "[", "*", "#", "a..b",
    "1-1-1", "0-0", "1732150000000-42-7", "null", '{"a": ', "[" * 30_000, "tcp://x", "unix:", ":", "127.0.0.1:1",
)  # fmt: skip


def line(rng: random.Random, words: tuple[str, ...], takes: list[argparse.Action]) -> list[str]:
    """One command line: good here and there, so that it gets further than its first word."""
    given = [*words]
    for each in takes:
        count = {None: 1, "?": rng.randrange(2), "*": rng.randrange(3), "+": 1, 0: 0}.get(each.nargs, 1)
        values = [value(rng, each) for _ in range(int(count))]
        if not each.option_strings:
            given += values
        elif each.required or rng.random() < 0.25:
            option = rng.choice(each.option_strings)
            given += [f"{option}={values[0]}" if values and option.startswith("--") and len(values) == 1 else option]
            given += values if not given[-1].startswith(f"{option}=") else []
    return [each.replace("\0", "") for each in given]


def value(rng: random.Random, takes: argparse.Action) -> str:
    """A value of one of its choices, a good one, or a wrong one."""
    if takes.choices and rng.random() < 0.7:
        return str(rng.choice([*takes.choices]))
    good = {"QUEUE": "jobs", "NAME": "jobs", "KEY": "t", "TIME": "0.1s", "N": "2"}.get(str(takes.metavar))
    return good if good and rng.random() < 0.6 else rng.choice(WORDS)


@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(3_600 if SOAK else 600)  # each command has a limit of its own
def test_whatever_is_typed_is_answered_in_few_lines(
    cli: Command, queue: Queue, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng, wrong = random.Random(seed), []
    every = commands()
    assert {*every} | {name.split()[0] for name in every} >= UNENDING
    tried = {name: takes for name, takes in every.items() if not UNENDING & {name, name.split()[0]}}
    for _ in range(RUNS):
        name = rng.choice([*tried])
        takes = [each for each in tried[name] if not ENDLESS.intersection(each.option_strings)]
        words = [*line(rng, (*name.split(),), takes), "--timeout=2"]
        if any("--listen" in each.option_strings for each in takes):
            words.append(NOWHERE)
        if rng.random() < 0.1:
            words += [f"--url=redis://:{SECRET}@{rng.choice(('127.0.0.1:x', '[::1', '127.0.0.1:1/0?a=b', 'a b/c'))}"]
        told = cli(*words)
        if told.code not in CODES or "Traceback" in told.err or told.err.count("\n") > MAX_LINES:
            wrong.append(f"{ascii(words)[:300]}: {told.code}, {told.err[-600:]}")
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", told.err) or SECRET in told.err + told.out:
            wrong.append(f"{ascii(words)[:300]} shows a terminal's command or a secret: {ascii(told.err)[:600]}")
    assert not wrong, "\n".join(wrong[:20])
