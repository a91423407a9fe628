"""Tries in every form of compare-and-swap that this machine has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from shardq.routing.atomic import forms
from shardq.routing.ctrie import Ctrie

FORMS = list(forms())
MakeTrie = Callable[..., Ctrie]


@pytest.fixture(params=FORMS)
def make_trie(request: pytest.FixtureRequest) -> MakeTrie:
    """Makes tries of one form; each test runs with each."""
    return lambda **settings: Ctrie(form=request.param, **settings)


@pytest.fixture
def trie(make_trie: MakeTrie) -> Ctrie:
    """An empty trie."""
    return make_trie()


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
