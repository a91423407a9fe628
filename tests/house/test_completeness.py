"""What readers of the API reference miss becomes less: `python -m tests.house.completeness` names each."""

from __future__ import annotations

import re
from collections import Counter

import griffe
import pytest

from tests.house import api, completeness
from tests.house.doc_blocks import blocks, documents

MISSED = {"docstring": 262, "types": 68, "errors": 120, "example": 354}
"""Public names without it: the numbers may only shrink, and are written anew when they did."""
CODE = '''
class Queue:
    """A queue. `size` is how large it is."""

    size: int
    colour: str

    def read(self, block) -> int:
        """Read. Empty: nothing came."""

    def write(self, payload: bytes) -> None:
        """Write. Raises nothing::

            queue.write(b"")
        """

    def close(self) -> None: ...

    def _hidden(self): ...
'''


def test_what_the_reference_lacks_only_shrinks() -> None:
    missed = Counter(what for what, _ in completeness.misses())
    assert missed == MISSED, "more: see python -m tests.house.completeness; fewer: write MISSED anew"


def test_each_module_that_a_page_imports_is_public() -> None:
    code = "\n".join(block.code for page in documents() for block in blocks(page) if block.language == "python")
    imported = set(re.findall(r"^(?:from|import) (shardq[\w.]*)", code, re.MULTILINE))
    assert imported - {*api.MODULES} == {"shardq.exporter.policy"}


def test_each_name_of_the_package_is_looked_at() -> None:
    import shardq

    exported = {each for each in shardq.__all__ if isinstance(getattr(shardq, each), type)}
    assert exported - {each.name for each in api.names("shardq")} == set()


def test_what_is_missed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with griffe.temporary_visited_module(CODE, module_name="made_up") as module:
        monkeypatch.setattr(api, "MODULES", ("made_up",))
        monkeypatch.setattr(api, "names", lambda _: iter([module["Queue"]]))
        found = sorted(completeness.misses())
    assert found == sorted(
        [
            ("docstring", "made_up.Queue.colour"),
            ("docstring", "made_up.Queue.close"),
            ("errors", "made_up.Queue.close"),
            ("example", "made_up.Queue"),
            ("example", "made_up.Queue.close"),
            ("example", "made_up.Queue.read"),
            ("types", "made_up.Queue.read"),
        ]
    )
