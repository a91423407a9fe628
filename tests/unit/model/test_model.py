"""The values that users meet: settings that cannot be wrong, ids, and nothing secret in their text."""

from __future__ import annotations

import pickle
from dataclasses import asdict, replace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.arguments import seconds
from shardq.codec import Codecs, JsonCodec
from shardq.errors import CodecError, ConfigError
from shardq.model import DeadLetter, Message, MessageId, QueueConfig, QueueSettings, Received
from shardq.model.partitions import Partitions
from tests.surface import differences

OTHER: dict[str, Any] = {
    "streams": 8, "streams_per_shard": 2, "visibility_timeout": 7.5, "max_deliveries": 3, "max_len": 900,
    "max_dead": 70, "drop_dead": 1, "dead_ttl": 86_400.0, "dedup_window": 60.0, "max_dedup": 80, "key_scope": "queue",
    "max_bulk_offsets": 90, "window": 2, "fair": "messages", "max_in_flight": 5, "max_backlog": 50, "rate": 2.5,
    "burst": 6, "total_in_flight": 40, "total_rate": 100.0, "total_burst": 7, "parents": 1, "journal": 1000,
    "result_ttl": 60.0, "max_result_size": 1024, "max_result_bytes": 2048, "max_schedules": 10, "ttl": 3600.0,
    "legacy_stream": "123", "legacy_group": "456", "partitions": Partitions.parse("3:4,a"),
}  # fmt: skip
"""A good value of each setting that is not its default."""

configs = st.builds(
    QueueConfig,
    streams=st.integers(1, 4096),
    streams_per_shard=st.integers(1, 4096),
    visibility_timeout=st.integers(50, 604_800_000).map(lambda ms: ms / 1000),
    max_deliveries=st.integers(2, 1_000_000),
    max_len=st.integers(0, 2**40),
    ttl=st.none() | st.integers(1000, 10**9).map(lambda ms: ms / 1000),
    dedup_window=st.integers(1000, 10**9).map(lambda ms: ms / 1000),
)


def again(config: QueueConfig) -> QueueConfig:
    """What is read of the settings that Redis keeps."""
    flat = [str(each) for each in config.settings()]
    return QueueConfig.from_settings(dict(zip(flat[::2], flat[1::2], strict=True)), config.streams)


@given(configs)
def test_settings_survive_being_stored(config: QueueConfig) -> None:
    assert again(config) == config


def test_each_setting_survives_being_stored() -> None:
    assert differences(OTHER, QueueConfig.__struct_fields__) == []
    assert [name for name, value in OTHER.items() if value == getattr(QueueConfig(), name)] == []
    assert again(QueueConfig(**OTHER)) == QueueConfig(**OTHER)


def test_settings_that_are_missing_get_their_defaults() -> None:
    assert QueueConfig.from_settings({"something": "else", "max_len": "5"}, 7) == QueueConfig(streams=7, max_len=5)


def test_the_settings_that_type_checkers_know_are_those_that_there_are() -> None:
    assert get_type_hints(QueueSettings) == get_type_hints(QueueConfig)
    assert [*get_type_hints(QueueSettings)] == [*QueueConfig.__struct_fields__]


BAD: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        (
            "streams", "streams_per_shard", "max_deliveries", "max_len", "max_dead", "drop_dead", "max_dedup",
            "max_bulk_offsets", "window", "max_in_flight", "max_backlog", "burst", "total_in_flight", "total_burst",
            "parents", "journal", "max_result_size", "max_result_bytes", "max_schedules", "partitions",
        ),
        (-1, 2**41, True, 1.0, "1", None),
    ),
    **dict.fromkeys(
        ("visibility_timeout", "dedup_window", "ttl", "dead_ttl", "result_ttl"),
        (-1, 0, 0.01, float("nan"), float("inf"), True, "1", 10**10),
    ),
    **dict.fromkeys(("rate", "total_rate"), (-1, float("nan"), float("inf"), True, "1", None, 10**10)),
    **dict.fromkeys(("key_scope", "fair"), ("other", "", 1, None)),
    **dict.fromkeys(("legacy_stream", "legacy_group"), ("", 1, b"s")),
}  # fmt: skip


def test_each_setting_has_bad_values() -> None:
    assert differences(BAD, QueueConfig.__struct_fields__) == []


@pytest.mark.parametrize("name", BAD)
def test_a_bad_setting_is_named(name: str) -> None:
    for value in BAD[name]:
        with pytest.raises(ConfigError, match=f"^{name} must be"):
            QueueConfig(**{name: value})


def test_one_delivery_is_not_enough() -> None:
    """A reply that is lost counts as one: the message would die unseen."""
    with pytest.raises(ConfigError, match="a lost reply counts as a delivery"):
        QueueConfig(max_deliveries=1)


def test_an_id_is_taken_apart() -> None:
    assert MessageId.parse("1700000000000-42-7") == ("1700000000000-42", "7")
    assert MessageId.parse("1700000000000-42-d").written_ms == 1_700_000_000_000


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "1-2",
        "1-2-",
        "1-2-x",
        "1-2-3-4",
        "1-2-3 ",
        "a-b-c",
        "1-2-3\n",
        "\u0661-\u0662-\u0663",
        None,
        b"1-2-3",
        "1-2-o",
        "1-2-o.a b",
        f"1-2-o.{'x' * 4000}",
        f"1-2-o.{'x' * 1025}",
        f"1-2-o.{'%ff' * 1025}",
    ],
)
def test_what_is_no_id_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match="message_id"):
        MessageId.parse(bad)


@pytest.mark.parametrize("bad", [-0.1, 10.1, "5", None, True, float("nan")])
def test_seconds_are_a_number_within_bounds(bad: Any) -> None:
    with pytest.raises(ConfigError, match=r"wait must be a number of seconds from 0 to 10"):
        seconds("wait", bad, 0, 10)


def test_seconds_are_returned() -> None:
    assert (seconds("wait", 0, 0, 10), seconds("wait", 10, 0, 10)) == (0.0, 10.0)


SECRET = "hunter2"
RECEIVED: dict[str, Any] = {
    "message_id": "1-2-3", "shard_key": "t", "count": 1, "deadline": 0.0, "body": SECRET.encode(), "tag": "b",
    "headers": {"a": SECRET}, "last_error": "", "stream": 3, "pickup_delay": 0.0, "token": SECRET,
    "fields": {"a": SECRET.encode()},
}  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        Message(SECRET, "t", headers={"a": SECRET}),
        Received(**RECEIVED),
        DeadLetter("1-0", "1-2-3", "t", "no", 1, "", 0.0, 0.0, SECRET.encode(), "b", {"a": SECRET}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_text_shows_a_payload_a_header_or_a_token(value: object) -> None:
    """Values end up in logs."""
    assert "shard_key='t'" in repr(value)
    assert SECRET not in repr(value) + str(value)


def test_an_error_is_readable_and_shows_no_more_of_a_value_than_fits() -> None:
    with pytest.raises(ConfigError, match=r"wait must be a number of seconds from 0 to 315,360,000, not this int$"):
        seconds("wait", 10**5000, 0, 315_360_000)
    with pytest.raises(ConfigError, match=r"streams must be a whole number from 1 to 4,096, not this int$"):
        QueueConfig(streams=10**5000)
    with pytest.raises(ConfigError, match=r"from 0\.05 to 604,800, not '1{38}…$"):
        QueueConfig(visibility_timeout="1" * 5000)  # type: ignore[arg-type]


def test_a_dead_letter_is_plain_data_whichever_codecs_read_it() -> None:
    """Compared, replaced and pickled as its fields; then it is read with the built-in codecs."""
    letter = DeadLetter("1-0", "1-2-3", "t", "no", 1, "", 0.0, 0.0, b"{}", "j")
    other = letter.read_with(Codecs(JsonCodec(dict[str, int])))
    assert replace(letter) == pickle.loads(pickle.dumps(letter)) == other == letter  # noqa: S301 (our own)
    assert asdict(letter)["body"] == b"{}"
    assert letter.payload == pickle.loads(pickle.dumps(letter)).payload == {}  # noqa: S301 (our own)


def test_a_dead_letter_is_read_with_the_codecs_it_was_given() -> None:
    class Shout:
        tag = "S"

        def encode(self, value: str) -> bytes:
            return value.upper().encode()

        def decode(self, body: bytes) -> str:
            return body.decode() + "!"

    letter = DeadLetter("1-0", "1-2-3", "t", "no", 1, "", 0.0, 0.0, b"HO", "S")
    with pytest.raises(CodecError, match="no codec has the tag 'S'"):
        _ = letter.payload
    assert letter.read_with(Codecs(Shout())).payload == "HO!"
