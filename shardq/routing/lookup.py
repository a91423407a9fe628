"""The values of all patterns that match a topic, as of one instant, without a lock and without waiting.

The trie is walked breadth first, by pairs of an I-node and how many words of the topic lead to it. A branch under `#`
is entered once for each number of words that the `#` may have stood for; no pair is entered twice. So a lookup takes
O(nodes x words) steps, however many `#` a pattern has; walking each way by itself would take exponentially many.

Several nodes cannot be read at once. After the walk all of them are looked at again: if each still holds what it held,
then between the two passes all of it was true at the same time, and that is when the lookup happened. Otherwise a write
came in between, and the lookup is repeated.
"""

from __future__ import annotations

from typing import Any

from shardq.routing.nodes import BITS, FAN

LAST = FAN - 1
NOTHING: frozenset[str] = frozenset()


Seen = list[tuple[Any, Any]]
"""I-nodes, and what they held."""


def lookup(head: Any, topic: str) -> frozenset[str]:
    """The values of the patterns in the trie of *head* that match *topic*."""
    while True:
        root = head.root
        top = root.main
        seen: Seen = []
        held = _entry(top[0], topic, root.gen, seen)
        found = [] if held is None else _values(held, seen)
        if _wild(top[1], topic, root.gen, found, seen) and root.main is top and head.root is root:
            return frozenset(found) if found else NOTHING


def _wild(top: Any, text: str, gen: object, found: list[str], seen: Seen) -> bool:  # noqa: C901 - see below
    """Walk the patterns with wildcards; whether everything that was read is still as it was.

    One long function: it is the hot path, and a call costs as much as a node.
    """
    topic = text.split(".") if text else []
    size = len(topic)
    nodes, ats, mains = [top], [0], []
    lowest: dict[int, int] = {}
    for node, at in zip(nodes, ats, strict=False):  # the lists grow while they are walked
        main = node.main
        mains.append(main)
        run, values, star, many, words = main
        if run:
            start, at = at, at + len(run)  # noqa: PLW2901 - the words of the run are consumed
            if at > size or not _same(run, topic, start):
                continue
        if many is not None:
            kind = type(many)
            if kind is str:
                found.append(many)
            elif kind is tuple and not many[0]:
                found += many[1:]
            else:
                for after in _under(many, topic, at, lowest, found):
                    nodes.append(many)
                    ats.append(after)
        if at == size:
            if values is not None:
                found += _values(values, seen)
            continue
        wanted = topic[at]
        at += 1  # noqa: PLW2901 - so is this word
        if words is None:
            word = None
        elif type(words) is dict:
            word = words.get(wanted)
        elif type(words) is tuple:
            word = words[1] if words[0] == wanted else words[3] if len(words) > 2 and words[2] == wanted else None
        else:
            word = _entry(words, wanted, gen, seen)
        for branch in (word, star) if star is not None else (word,):
            if branch is None:
                continue
            kind = type(branch)
            if kind is str:
                if at == size:
                    found.append(branch)
            elif kind is tuple:
                if _fits(branch[0], topic, at, size):
                    found += branch[1:]
            else:
                nodes.append(branch)
                ats.append(at)
    for node, main in zip(nodes, mains, strict=True):
        if node.main is not main:
            return False
    for node, main in seen:  # noqa: SIM110 - a generator costs more than the loop
        if node.main is not main:
            return False
    return True


def _under(branch: Any, topic: list[str], at: int, lowest: dict[int, int], found: list[str]) -> range:
    """What is under `#` goes on after any of the words from *at* on: where a node is to be entered."""
    size = len(topic)
    below = lowest.get(id(branch), size + 1)
    if at >= below:
        return range(0)
    lowest[id(branch)] = at
    if type(branch) is not tuple:
        return range(at, below)
    if any(_fits(branch[0], topic, after, size) for after in range(at, below)):
        found += branch[1:]
    return range(0)


def _entry(page: Any, key: str, gen: object, seen: Seen) -> Any:
    """What the page has under *key*.

    Of the lists on the way only those matter that could yet be replaced: an I-node of this generation that holds no
    T-node is in the trie.
    """
    bits = hash(key)
    main = page.main
    while type(main) is list:
        below = main[bits & LAST]
        if below is None:
            seen.append((page, main))
            return None
        if below.gen is not gen:
            seen.append((page, main))
        page = below
        main = page.main
        bits >>= BITS
    seen.append((page, main))
    return main.get(key)


def _values(held: Any, seen: Seen) -> list[str]:
    """The values of a leaf, or all in a page."""
    kind = type(held)
    if kind is str:
        return [held]
    if kind is tuple:
        return list(held[1:])
    found: list[str] = []
    todo = [held]
    for page in todo:
        main = page.main
        seen.append((page, main))
        if type(main) is list:
            todo += filter(None, main)
        else:
            found += main
    return found


def _same(run: tuple[str, ...], topic: list[str], at: int) -> bool:
    """Whether the run is the topic's words from *at* on; it has no `#`."""
    for word in run:
        if word != topic[at] and word != "*":
            return False
        at += 1
    return True


def _fits(tail: str, topic: list[str], at: int, size: int) -> bool:
    """Whether the tail matches all words from *at* on; only its last word may be `#`."""
    words = tail.split(".")
    wanted = len(words) - 1
    if words[-1] == "#":
        wanted -= 1
        if size - at < wanted:
            return False
    elif size - at != wanted:
        return False
    for word in words[1 : wanted + 1]:
        if word != topic[at] and word != "*":
            return False
        at += 1
    return True
