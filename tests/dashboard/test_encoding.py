"""Whatever a scene has in it, a browser can read it."""

from __future__ import annotations

import json
import math

import pytest

from shardq.dashboard.encoding import encoded


@pytest.mark.parametrize("text", ["plain", "\ud800", "\u2028\r\n\0"])
def test_numbers_that_json_does_not_have_are_null_beside_any_text(text: str) -> None:
    found = encoded({"text": text, "rows": [{"at": math.inf}, (math.nan, 1.5)], "many": 2**70})
    assert json.loads(found, parse_constant=pytest.fail) == {
        "text": text, "rows": [{"at": None}, [None, 1.5]], "many": 2**70,
    }  # fmt: skip
    assert len(found.splitlines()) == 1
