"""Alternatives, as a file or the command line says them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardq import ConfigError, Limits
from shardq.model import Plan
from shardq.whatif.alternative import Alternative, alternative_of, alternatives, by_workers, read_alternatives

FILE = b"""
[more]
workers = 8
slots = 4

[gold]
streams = 32
weights = {acct-7 = 3}
limits = {acct-8 = {rate = 5}, acct-9 = "free"}
plans = {free = {max_in_flight = 2}}
"""


def test_a_file_names_alternatives() -> None:
    assert alternatives(FILE) == [
        Alternative("more", workers=8, slots=4),
        Alternative(
            "gold",
            settings={"streams": 32},
            weights={"acct-7": 3},
            limits={"acct-8": Limits(rate=5), "acct-9": "free"},
            plans={"free": Plan(max_in_flight=2)},
        ),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("more = 3", "must be a table"),
        ("[more]\nworkers = 0", "workers"),
        ("[more]\nworkers = 100000", "workers"),
        ("[more]\nslots = 'many'", "slots"),
        ("[more]\ncolour = 3", "colour"),
        ("[more]\nmax_dead = 3", "does not depend on the setting 'max_dead'"),
        ("[more]\nweights = {a = 0}", "weight"),
        ("[more]\nassignment = {keys = ['a']}", "assignment"),
        ("[more", "TOML"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "tries.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told) as raised:
        read_alternatives(path)
    assert "tries.toml" in str(raised.value)


def test_one_for_each_number_of_workers() -> None:
    found = by_workers(alternative_of("fewer", {"streams": 8}), [2, 4])
    assert [(each.name, each.workers, each.settings) for each in found] == [
        ("2 workers, fewer", 2, {"streams": 8}),
        ("4 workers, fewer", 4, {"streams": 8}),
    ]
