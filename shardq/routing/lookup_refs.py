"""As `lookup`, for I-nodes whose content is in a `ref`, for which there may be no instant to replace two things in.

So a change is announced: its descriptor is put in the node, then the stamp is replaced, then the change takes effect.
When the stamp after the walk is that from before, then each node that was read holds what it held: a change of it that
had been announced before the walk would have shown its descriptor or have been over, and one that was announced later
replaced the stamp. Whoever meets a descriptor decides it, which replaces the stamp, too; the walk is repeated.

This is the twin of `lookup`; they differ in how a node is read, which is too often for a call. What is said there of
the walk is true here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from shardq.routing.lookup import NOTHING, TRIES, frozen
from shardq.routing.many import matching
from shardq.routing.match import ends, fits, same, values
from shardq.routing.nodes import BITS, FIRST_BITS, FIRST_LAST, LAST, TombPage

T = TypeVar("T")


def lookup(head: Any, text: str) -> frozenset[str]:
    """The values of the patterns in the trie of *head* that match the topic *text*."""
    stamps = head.stamp
    tries = TRIES
    while tries:
        stamp = stamps.get()
        top = head.ref.get().ref.get()
        if type(top) is not list:
            top = head.root.main
        found = walk(top, text)
        if stamps.get() is stamp:
            return frozenset(found) if found else NOTHING
        tries -= 1
    return frozenset(walk(frozen(head), text))


def glance(head: Any, ask: Callable[[Any], T]) -> T:
    """As `lookup.glance`; `main` decides what it meets undecided."""
    tries = TRIES
    while tries:
        stamp = head.stamp.get()
        answer = ask(head.root.main)
        if head.stamp.get() is stamp:
            return answer
        tries -= 1
    return ask(frozen(head))


def walk(top: Any, text: str) -> list[str]:  # noqa: C901 - as in `lookup`
    """The values below *top*, the content of a root, that match *text*; some may be there more than once."""
    page, node = top
    main = page.ref.get()
    bits, used, last = hash(text), FIRST_BITS, FIRST_LAST
    while type(main) is not dict:
        if type(main) is list:
            page = main[bits & last]
            if page is None:
                main = None
                break
            main = page.ref.get()
            bits >>= used
            used, last = BITS, LAST
        else:
            main = page.main
            if type(main) is TombPage:
                break
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
        main = node.ref.get()
        if type(main) is not tuple:
            main = node.main
        run, held, star, many, words = main
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
                        page = words
                        main = page.ref.get()
                        bits, used, last = hash(word), FIRST_BITS, FIRST_LAST
                        while type(main) is not dict:
                            if type(main) is list:
                                page = main[bits & last]
                                if page is None:
                                    main = None
                                    break
                                main = page.ref.get()
                                bits >>= used
                                used, last = BITS, LAST
                            else:
                                main = page.main
                                if type(main) is TombPage:
                                    break
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
    """As `lookup.place`."""
    if page is None:
        top = head.ref.get().ref.get()
        page = top[0] if type(top) is list else head.root.main[0]
    bits, used, last = hash(key), FIRST_BITS, FIRST_LAST
    main = page.ref.get()
    while type(main) is not dict:
        if type(main) is not list:
            main = page.main  # decided, if it was not
            if type(main) is not list:
                break
        below = main[bits & last]
        if below is None:
            break
        page = below
        main = page.ref.get()
        bits >>= used
        used, last = BITS, LAST
    return page, main, bits & last
