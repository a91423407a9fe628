"""Readers of the API reference miss nothing: `python -m tests.house.completeness` names what they would."""

from __future__ import annotations

import re
from collections.abc import Iterator

import griffe
import pytest

from tests.house import api, completeness
from tests.house.doc_blocks import blocks, documents

CODE = '''
class Queue:
    """A queue. `size` is how large it is."""

    size: int
    colour: str

    def read(self, block) -> int:
        """Read. Empty: nothing came."""

    def write(self, payload: bytes) -> None:
        """Write. Raises nothing.

        >>> queue.write(b"")
        """

    def close(self) -> None: ...

    def _hidden(self): ...

    def inner(self):
        """For the parts of shardq that read."""


class Deep(Queue):
    """A deep queue, as `Queue.write` has it; the fields are those of `Queue`.

    >>> Deep(3).close()
    """

    colour: str

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.size = 3


class Row:
    """A row of `Queue.write`, with its `number`."""

    number: int


class Text:
    """A text of `Queue.read`."""


class Kind(Enum):
    """A kind."""

    ONE = 1
'''


def test_the_reference_lacks_nothing() -> None:
    assert [*completeness.misses()] == [], "see python -m tests.house.completeness"


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
        kinds = [module[name] for name in ("Queue", "Deep", "Row", "Text", "Kind")]
        monkeypatch.setattr(api, "names", lambda _: iter(kinds))
        found = {kind.name: sorted((what, name.rpartition(".")[2]) for what, name in misses(kind)) for kind in kinds}
    assert found == {
        "Queue": [
            ("docstring", "close"),
            ("docstring", "colour"),
            ("errors", "close"),
            ("example", "Queue"),
            ("example", "close"),
            ("example", "read"),
            ("types", "read"),
        ],
        "Deep": [("docstring", "close"), ("docstring", "colour"), ("docstring", "depth"), ("errors", "close")],
        "Row": [],
        "Text": [("example", "Text")],
        "Kind": [("docstring", "ONE"), ("example", "Kind")],
    }


def misses(kind: griffe.Class) -> Iterator[tuple[str, str]]:
    """What is missed of a class, without what it inherits."""
    for what, name in completeness.misses():
        kind_name, _, member = name.removeprefix("made_up.").partition(".")
        if kind_name == kind.name and (not member or member == "close" or member in kind.members):
            yield what, name
