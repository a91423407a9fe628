"""What handlers raise, and what becomes of it."""

from __future__ import annotations

import pytest

from shardq import ConfigError, Nack, Reject
from shardq.model.failed import MAX_TEXT, described
from shardq.worker.outcome import Outcome, outcome_of


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def backoff() -> float:
    return 7.0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Nack(3), Outcome("nack", 3.0, "")),
        (Nack(0, "busy"), Outcome("nack", 0.0, "busy")),
        (Nack(), Outcome("nack", 7.0, "")),
        (Reject("not mine"), Outcome("reject", 0.0, "not mine")),
        (Reject(""), Outcome("reject", 0.0, "rejected")),
        (ValueError("a\nb"), Outcome("nack", 7.0, "ValueError: a b", error_type="ValueError")),
        (SystemExit(3), Outcome("nack", 7.0, "SystemExit: 3", error_type="SystemExit")),
        (KeyError(), Outcome("nack", 7.0, "KeyError", error_type="KeyError")),
        (Mute(), Outcome("nack", 7.0, "Mute", error_type="Mute")),
        (Reject("\udcff"), Outcome("reject", 0.0, "?")),
        (Reject(Mute()), Outcome("reject", 0.0, "rejected")),  # type: ignore[arg-type]
        (Nack(1, Mute()), Outcome("nack", 1.0, "")),  # type: ignore[arg-type]
        (Nack(1, "x" * 10_000_000), Outcome("nack", 1.0, "x" * MAX_TEXT)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_each_ending_has_its_outcome(error: BaseException, outcome: Outcome) -> None:
    assert outcome_of(error, backoff) == outcome


def test_the_text_of_an_error_is_bounded() -> None:
    assert len(described(ValueError("x" * 10_000))) == MAX_TEXT


@pytest.mark.parametrize("delay", [-1, "soon", True, float("nan"), float("inf")])
def test_a_bad_delay_is_refused_where_it_is_raised(delay: float) -> None:
    with pytest.raises(ConfigError, match="delay"):
        Nack(delay)
