"""The values of all patterns that match a topic, as of one instant, without a lock and without waiting.

The trie is walked by pairs of an I-node and how many words of the topic lead to it. What lies below a `#` may be led to
by several numbers of words: it is walked by `many`, with all of them at once. So a lookup enters no node twice, however
many `#` a pattern has; walking each way by itself would take exponentially many steps.

Several nodes cannot be read at once. Each change of the trie replaces its head's `stamp` in the same instant. If that
is the same after the walk as before, nothing changed meanwhile, and all that was read was true at the same time. Else
the walk is repeated; when it was disturbed often, it is done in a snapshot, which nobody changes. So a lookup ends
after a bounded number of steps, whatever the writers do.

It is one long function, since it is the hot path: a call costs as much as a node. `lookup_refs` is its twin for the
forms of compare-and-swap that cannot replace a stamp in the same instant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from shardq.routing.many import matching
from shardq.routing.match import ends, fits, same, values
from shardq.routing.nodes import BITS, FIRST_BITS, FIRST_LAST, LAST

T = TypeVar("T")
NOTHING: frozenset[str] = frozenset()
TRIES = 8


def lookup(head: Any, text: str) -> frozenset[str]:
    """The values of the patterns in the trie of *head* that match the topic *text*."""
    tries = TRIES
    while tries:
        stamp = head.stamp
        found = walk(head.root.main, text)
        if head.stamp is stamp:
            return frozenset(found) if found else NOTHING
        tries -= 1
    return frozenset(walk(frozen(head), text))


def glance(head: Any, ask: Callable[[Any], T]) -> T:
    """What *ask* says of what the root holds and what is below it, all of one instant, as in `lookup`."""
    tries = TRIES
    while tries:
        stamp = head.stamp
        answer = ask(head.root.main)
        if head.stamp is stamp:
            return answer
        tries -= 1
    return ask(frozen(head))


def frozen(head: Any) -> Any:
    """What the root held at one instant; what is below it does not change any more."""
    while True:
        root = head.root
        top = root.main
        if head.renew(root, top, top):
            return top


def walk(top: Any, text: str) -> list[str]:  # noqa: C901 - see above
    """The values below *top*, the content of a root, that match *text*; some may be there more than once."""
    page, node = top
    main = page.main
    if type(main) is list:
        bits = hash(text)
        page = main[bits & FIRST_LAST]
        bits >>= FIRST_BITS
        main = page and page.main
        while type(main) is list:
            page = main[bits & LAST]
            bits >>= BITS
            main = page and page.main
    found: list[str] = []
    if main:
        held = main.get(text)
        if held is not None:
            if type(held) is str:
                found.append(held)
            else:
                found += values(held)
    topic = text.split(".") if text else []
    size = len(topic)
    at = 0
    todo: list[Any] = []  # nodes to be entered, each followed by how many words lead to it
    while True:
        run, held, star, many, words = node.main
        node = None
        if not run or same(run, topic, at):
            at += len(run)
            if many is not None:
                kind = type(many)
                if kind is str:
                    found.append(many)
                elif kind is not tuple or many[0][-2:] == ".#":
                    for part in matching(many, topic, (2 << size) - (1 << at)):
                        found += values(part)
                elif ends(many[0], topic, at):
                    found += many[1:]
            if at == size:
                if held is not None:
                    found += values(held)
            else:
                if words is not None:
                    word = topic[at]
                    kind = type(words)
                    if kind is dict:
                        branch = words.get(word)
                    elif kind is tuple:
                        branch = None
                        if words[0] == word:
                            branch = words[1]
                        elif len(words) > 2 and words[2] == word:
                            branch = words[3]
                    else:
                        main = words.main
                        if type(main) is list:
                            bits = hash(word)
                            page = main[bits & FIRST_LAST]
                            bits >>= FIRST_BITS
                            main = page and page.main
                            while type(main) is list:
                                page = main[bits & LAST]
                                bits >>= BITS
                                main = page and page.main
                        branch = main.get(word) if main else None
                    if branch is not None:
                        kind = type(branch)
                        if kind is str:
                            if at + 1 == size:
                                found.append(branch)
                        elif kind is not tuple:
                            node = branch
                        elif fits(branch[0], topic, at + 1):
                            found += branch[1:]
                at += 1
                if star is not None:
                    kind = type(star)
                    if kind is str:
                        if at == size:
                            found.append(star)
                    elif kind is not tuple:
                        if node is None:
                            node = star
                        else:
                            todo.append(star)
                            todo.append(at)
                    elif fits(star[0], topic, at):
                        found += star[1:]
        if node is None:
            if not todo:
                return found
            at = todo.pop()
            node = todo.pop()


def place(head: Any, page: Any, key: str) -> tuple[Any, Any, int]:
    """The I-node of a page where *key* belongs, what it holds, and if that is a list, where its I-node would be.

    No page is that of the literal patterns.
    """
    if page is None:
        page = head.root.main[0]
    bits, used, last = hash(key), FIRST_BITS, FIRST_LAST
    main = page.main
    while type(main) is list:
        below = main[bits & last]
        if below is None:
            break
        page = below
        main = page.main
        bits >>= used
        used, last = BITS, LAST
    return page, main, bits & last
