"""One table of flags: every command takes what several take from there, so that it means the same everywhere."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator

import pytest

from shardq.cli.flags import CHANGE, FLAGS
from shardq.cli.program import parser
from shardq.cli.values import time
from tests.surface import commands

COLUMN = "COLUMN"
"""The metavar of a pipeline's flags that name columns of a table: `--delay COLUMN` is the column of the delays."""


def options(name: str) -> Iterator[argparse.Action]:
    """What the command of this name takes besides its arguments."""
    for action in commands()[name]:
        if action.option_strings and not isinstance(action, argparse._HelpAction):
            yield action


@pytest.mark.parametrize("name", sorted(commands()))
def test_what_the_table_has_is_taken_from_it(name: str) -> None:
    named = {each: key for key, flag in FLAGS.items() for each in flag.names}
    for action in options(name):
        if action.metavar == COLUMN:
            continue
        key = vars(action).get("flag")
        for each in action.option_strings:
            assert named.get(each) == key, f"{each} of shardq {name}"
        if key is not None:
            flag = FLAGS[key]
            assert tuple(action.option_strings) == flag.names
            assert (action.help or "").startswith(flag.meaning)
            assert action.type == flag.how.get("type")
            assert action.metavar == flag.how.get("metavar")


def test_a_flag_of_two_commands_is_one_of_the_table() -> None:
    own: dict[str, set[str]] = defaultdict(set)
    for name in commands():
        for action in options(name):
            if "flag" not in vars(action) and action.metavar != COLUMN:
                family = name.partition(" ")[0] if name.startswith(("edge ", "pipeline ")) else name
                for each in action.option_strings:
                    own[each].add(family)
    assert {each: names for each, names in own.items() if len(names) > 1} == {}


def test_each_flag_of_the_table_is_taken() -> None:
    taken = {vars(action).get("flag") for name in commands() for action in options(name)}
    assert FLAGS.keys() - taken == set()


def test_a_short_form_is_of_one_flag() -> None:
    shorts = [each for flag in FLAGS.values() for each in flag.names if not each.startswith("--")]
    assert len(shorts) == len(set(shorts))


@pytest.mark.parametrize("name", ["retry", "redrive", "purge", "pause", "resume", "configure", "limits", "cancel"])
def test_all_that_change_take_the_same(name: str) -> None:
    assert {*CHANGE} <= {vars(action).get("flag") for action in options(name)}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("90s", 90.0), ("15m", 900.0), ("2h", 7_200.0), ("7d", 604_800.0), ("0.5", 0.5), ("250ms", 0.25)],
)
def test_a_time_is_a_number_with_or_without_a_unit(text: str, seconds: float) -> None:
    assert time(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "1e3", "inf", "nan", "5 m", "5M", "1w", "٣", "1m30s", "s", "9" * 40]
)
def test_what_is_no_time_says_what_one_looks_like(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="such as 90s or 2h"):
        time(text)


def test_the_parser_is_made_of_the_table_too() -> None:
    assert {vars(each).get("flag") for each in parser()._actions} >= {"url", "timeout", "json"}


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("write jobs -t acct-7 hello", {"queue": "jobs", "tenant": "acct-7", "payload": "hello"}),
        ("write -t acct-7 jobs --as=json {}", {"queue": "jobs", "tenant": "acct-7", "payload": "{}", "form": "json"}),
        ("write jobs -tacct-7 --header a=b -- -x", {"queue": "jobs", "tenant": "acct-7", "payload": "-x"}),
        (
            "limits jobs -t t rate=3 --for 2h burst=9 -y",
            {"words": ["rate=3", "burst=9"], "seconds": 7_200.0, "yes": True},
        ),
        ("stats --watch jobs", {"queue": "jobs", "watch": 2.0}),
        ("stats -w 5 jobs", {"queue": "jobs", "watch": 5.0}),
        ("stats jobs --watch", {"queue": "jobs", "watch": 2.0}),
        ("tenants -n5 jobs", {"queue": "jobs", "limit": 5, "key": None}),
        ("purge jobs --dead --id a --id b", {"ids": ["a", "b"], "dead": True}),
        ("cancel jobs -t t -yn 5", {"limit": 5, "yes": True, "message_id": None}),
    ],
)
def test_flags_stand_anywhere_among_the_arguments(line: str, values: dict[str, object]) -> None:
    found = vars(parser().parse_args(line.split()))
    assert {name: found[name] for name in values} == values
