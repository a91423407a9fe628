"""What a client refuses before it connects anywhere; both faces alike."""

from __future__ import annotations

import copy
import pickle
from typing import Any, get_type_hints

import pytest

from shardq import AsyncClient, Client, ConfigError
from shardq.client.base import ClientSettings
from shardq.codec import BytesCodec, JsonCodec
from shardq.testing import ManualClock

URL = "redis://user:hunter2@nowhere.invalid"

each_face = pytest.mark.parametrize("face", [Client, AsyncClient])


@each_face
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
        {"retries": 3},
    ],
    ids=str,
)
def test_a_bad_setting_of_a_client_is_named(face: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        face.from_url(URL, **settings)


@each_face
def test_a_client_beside_another_has_its_settings(face: Any) -> None:
    settings: dict[str, Any] = {
        "codec": BytesCodec(), "codecs": (JsonCodec(),), "timeout": 2.0, "durability": "process", "max_connections": 3,
        "max_payload": 1000, "wait_slice": 0.5, "name": "me", "clock": ManualClock(),
    }  # fmt: skip
    assert settings.keys() == get_type_hints(ClientSettings).keys()
    one = face.from_url(URL, **settings)
    for other in (face.beside(one), face.beside(face.beside(one, timeout=9.0), timeout=2.0)):
        for setting in settings.keys() - {"codec"}:
            assert getattr(other, setting) == getattr(one, setting)
    assert (face.beside(one, timeout=9.0).timeout, one.timeout) == (9.0, 2.0)


@each_face
def test_a_url_given_to_the_class_is_told_where_it_belongs(face: Any) -> None:
    with pytest.raises(ConfigError, match=f"{face.__name__}.from_url"):
        face(URL)


@each_face
def test_a_client_shows_where_it_connects_to_and_no_password(face: Any) -> None:
    assert repr(face.from_url(URL)) == f"{face.__name__}(nowhere.invalid:6379)"


@each_face
@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy], ids=lambda leave: leave.__name__)
def test_a_client_and_what_hangs_on_it_stay_in_their_process(face: Any, leave: Any) -> None:
    client = face.from_url(URL)
    with pytest.raises(ConfigError, match="make one in each process"):
        leave(client)
    if leave is not copy.copy:
        with pytest.raises(ConfigError, match="make one in each process"):
            leave(client.queue("jobs"))
