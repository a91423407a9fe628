"""What a client refuses before it connects anywhere; both clients alike."""

from __future__ import annotations

import copy
import pickle
from typing import Any, get_type_hints

import pytest

from shardq import AsyncClient, Client, ConfigError, Spans
from shardq.client.base import ClientSettings
from shardq.codec import BytesCodec, JsonCodec
from shardq.testing import ManualClock

URL = "redis://user:hunter2@nowhere.invalid"

each_client_kind = pytest.mark.parametrize("client_kind", [Client, AsyncClient])


@each_client_kind
@pytest.mark.parametrize(
    "settings",
    [
        {"max_connections": 0},
        {"max_connections": "many"},
        {"max_payload": -1},
        {"max_payload": 2**40},
        {"timeout": 0},
        {"wait_slice": 60},
        {"durability": "much"},
        {"codec": "json"},
        pytest.param({"codecs": memoryview(b"json")}, id="codecs"),
        {"spans": "parent"},
        {"retries": 3},
    ],
    ids=str,
)
def test_a_bad_setting_of_a_client_is_named(client_kind: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        client_kind.from_url(URL, **settings)


@each_client_kind
def test_a_client_beside_another_has_its_settings(client_kind: Any) -> None:
    settings: dict[str, Any] = {
        "codec": BytesCodec(), "codecs": (JsonCodec(),), "timeout": 2.0, "durability": "process", "max_connections": 3,
        "max_payload": 1000, "wait_slice": 0.5, "name": "me", "clock": ManualClock(),
        "spans": Spans(parent=True, tenant="hash"),
    }  # fmt: skip
    assert settings.keys() == get_type_hints(ClientSettings).keys()
    one = client_kind.from_url(URL, **settings)
    for other in (client_kind.beside(one), client_kind.beside(client_kind.beside(one, timeout=9.0), timeout=2.0)):
        for setting in settings.keys() - {"codec"}:
            assert getattr(other, setting) == getattr(one, setting)
    assert (client_kind.beside(one, timeout=9.0).timeout, one.timeout) == (9.0, 2.0)


@each_client_kind
def test_a_url_given_to_the_class_is_told_where_it_belongs(client_kind: Any) -> None:
    with pytest.raises(ConfigError, match=f"{client_kind.__name__}.from_url"):
        client_kind(URL)


@each_client_kind
def test_a_client_shows_where_it_connects_to_and_no_password(client_kind: Any) -> None:
    assert repr(client_kind.from_url(URL)) == f"{client_kind.__name__}(nowhere.invalid:6379)"


@each_client_kind
@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy], ids=lambda leave: leave.__name__)
def test_a_client_and_what_hangs_on_it_stay_in_their_process(client_kind: Any, leave: Any) -> None:
    client = client_kind.from_url(URL)
    with pytest.raises(ConfigError, match="make one in each process"):
        leave(client)
    if leave is not copy.copy:
        with pytest.raises(ConfigError, match="make one in each process"):
            leave(client.queue("jobs", create=True))
