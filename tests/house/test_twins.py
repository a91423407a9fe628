"""The client for threads is what `tests/house/twins.py` makes of the one for asyncio, and what is by hand is alike."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from shardq import AsyncClient, AsyncWorker, Client, Worker
from shardq.client.async_writing import AsyncTurn
from shardq.client.sync_writing import Turn
from tests.house import twins
from tests.house.twins import CLIENT, GENERATED, NAMES, PHRASES, translated
from tests.surface import TWINS, members

SYNC_ONLY = {"end_wait"}  # a task is cancelled


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "async def read(self) -> int:\n    return await self.run()\n",
            "def read(self) -> int:\n    return self.run()\n",
        ),
        ("async with lock:\n    pass\n", "with lock:\n    pass\n"),
        ("async for each in rows:\n    pass\n", "for each in rows:\n    pass\n"),
        ("found = [each async for each in rows]\n", "found = [each for each in rows]\n"),
        ("async def __aenter__(self): ...\n", "def __enter__(self): ...\n"),
        ("await stack.__aexit__(*error)\n", "stack.__exit__(*error)\n"),
        ("class AsyncQueue(AsyncQueueAdmin): ...\n", "class Queue(QueueAdmin): ...\n"),
        ("from a.async_queue import AsyncQueue\n", "from a.queue import Queue\n"),
        ("await self.aclose()\n", "self.close()\n"),
        ("'See `AsyncQueue.read`: await it.'\n", "'See `Queue.read`: await it.'\n"),
        (
            "'''Await.\n\n>>> await one()\n>>> async with two():\n...     await three()\nawait\n'''\n",
            "'''Await.\n\n>>> one()\n>>> with two():\n...     three()\nawait\n'''\n",
        ),
        ("x = f'AsyncQueue({y})'  # as AsyncClient\n", "x = f'Queue({y})'  # as Client\n"),
        ("'For one loop, for one event loop.'\n", "'For one loop. One per process is enough.'\n"),
        ("Asynchronous = a_sync = is_async = 1\n", "Asynchronous = a_sync = is_async = 1\n"),
        ("x = 1\n\n\n# why\ny = (  # this\n    2\n)\n", "x = 1\n\n\n# why\ny = (  # this\n    2\n)\n"),
    ],
)
def test_what_is_of_asyncio_is_left_out_and_all_else_stays(source: str, expected: str) -> None:
    assert translated(source) == expected


CANCELLED = "except asyncio.CancelledError:\n    # why\n    undo()\n    raise\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"try:\n    one()  # first\n\n    await two()\n{CANCELLED}three()\n", "one()  # first\n\ntwo()\nthree()\n"),
        (f"try:\n    one()\n{CANCELLED}finally:\n    two()\n", "try:\n    one()\nfinally:\n    two()\n"),
        (
            f"try:\n    one()\n{CANCELLED}except ValueError:\n    two()\n",
            "try:\n    one()\nexcept ValueError:\n    two()\n",
        ),
        (
            "try:\n    try:\n        one()\n    finally:\n        two()\n" + CANCELLED,
            "try:\n    one()\nfinally:\n    two()\n",
        ),
    ],
)
def test_nobody_cancels_a_thread(source: str, expected: str) -> None:
    assert translated(source) == expected


def test_what_cannot_be_translated_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match=r": await asyncio.sleep\(1\)$"):
        translated("import asyncio\nawait asyncio.sleep(1)\n")


def test_the_tables_have_nothing_that_no_source_has() -> None:
    sources = "".join((CLIENT / f"async_{name}.py").read_text() for name in GENERATED)
    assert [name for name in NAMES if not re.search(rf"\b{name}\b", sources)] == []
    assert [phrase for phrase in PHRASES if phrase not in sources] == []


def test_a_file_that_was_changed_by_hand_is_named_until_it_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(twins, "CLIENT", tmp_path)
    monkeypatch.setattr(twins, "generated", lambda name: f"# {name}\n")
    for name in GENERATED:
        (tmp_path / f"{name}.py").write_text("# queue\n")
    assert twins.main(["--check"]) == 1
    named = capsys.readouterr().err
    assert "writer.py" in named
    assert "make twins" in named
    assert " queue.py" not in named
    assert twins.main([]) == twins.main(["--check"]) == 0


def signatures(client: type) -> dict[str, str]:
    """The public methods that *client* or a base of its own defines, by the names that they have with threads."""
    bases = [base for base in reversed(client.__mro__) if base.__module__.startswith("shardq.")]
    found = {name: each for base in bases for name, each in vars(base).items() if not name.startswith("_")}
    return {
        NAMES.get(name, name): re.sub(r"\bAsync", "", str(inspect.signature(each)))
        for name, each in found.items()
        if name not in SYNC_ONLY and inspect.isfunction(each)
    }


@pytest.mark.parametrize(("sync", "twin"), [(Client, AsyncClient), (Turn, AsyncTurn), (Worker, AsyncWorker)])
def test_what_is_by_hand_has_the_same_methods_with_the_same_arguments(sync: type, twin: type) -> None:
    assert signatures(sync) == signatures(twin) != {}


@pytest.mark.parametrize(("sync", "twin"), TWINS.items())
def test_programs_find_the_same_in_both(sync: type, twin: type) -> None:
    """Properties, too."""
    assert members(sync).keys() == members(twin).keys()
