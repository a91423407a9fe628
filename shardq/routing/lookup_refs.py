"""As `lookup`, for I-nodes whose content is in a `ref`: each read asks it, and all that was read is read again.

No stamp can be replaced in the same instant as a node's content. So after the walk all nodes are looked at a second
time: if each still holds what it held, then between the two passes all of it was true at the same time, and that is
when the lookup happened. Otherwise a write came in between, and the lookup is repeated.

The two differ in each place where a node is read, and a call there would cost more than what else is done. What they
share is in `match`; what is said of the walk in `lookup` is true here.
"""

from __future__ import annotations

from typing import Any

from shardq.routing.match import ends, fits, same, under
from shardq.routing.nodes import BITS, FIRST_BITS, FIRST_LAST, LAST

NOTHING: frozenset[str] = frozenset()

Seen = list[Any]
"""Refs, each followed by what it held."""


def lookup(head: Any, text: str) -> frozenset[str]:
    """The values of the patterns in the trie of *head* that match the topic *text*."""
    while True:
        root = head.root
        top = root.main
        seen: Seen = []
        found = walk(top, text, root.gen, seen)
        if unchanged(seen) and root.main is top and head.root is root:
            return frozenset(found) if found else NOTHING


def unchanged(seen: Seen) -> bool:
    """Whether all refs hold what they held."""
    pairs = iter(seen)
    for ref, main in zip(pairs, pairs, strict=True):  # noqa: SIM110 - a generator costs more than the loop
        if ref.get() is not main:
            return False
    return True


def entry(page: Any, key: str, gen: object, seen: Seen) -> Any:
    """What the page has under *key*.

    Of the lists on the way only those matter that could yet be replaced: an I-node of this generation that holds no
    T-node is in the trie.
    """
    ref = page.ref
    main = ref.get()
    bits, used, last = hash(key), FIRST_BITS, FIRST_LAST
    while type(main) is not dict:
        if type(main) is list:
            below = main[bits & last]
            if below is None or below.gen is not gen:
                seen.append(ref)
                seen.append(main)
                if below is None:
                    return None
            page = below
            ref = page.ref
            main = ref.get()
            bits >>= used
            used, last = BITS, LAST
            continue
        main = page.main  # decided, if it was not
        if isinstance(main, dict):
            break
    seen.append(ref)
    seen.append(main)
    return main.get(key)


def walk(top: Any, text: str, gen: object, seen: Seen) -> list[str]:  # noqa: C901 - as in `lookup`
    """The values below *top*, the content of a root, that match *text*; what was read is in *seen*."""
    page, node = top
    held = entry(page, text, gen, seen)
    found: list[str] = [] if held is None else values(held, seen)
    topic = text.split(".") if text else []
    size = len(topic)
    at = 0
    todo: list[Any] = []
    lowest: dict[int, int] = {}
    while True:
        ref = node.ref
        main = ref.get()
        if type(main) is not tuple:
            main = node.main
        seen.append(ref)
        seen.append(main)
        run, held, star, many, words = main
        node = None
        if not run or same(run, topic, at):
            at += len(run)
            if many is not None:
                kind = type(many)
                if kind is str:
                    found.append(many)
                elif kind is not tuple:
                    for after in under(many, topic, at, lowest):
                        todo += (many, after)
                elif ends(many[0], topic, under(many, topic, at, lowest)):
                    found += many[1:]
            if at == size:
                if held is not None:
                    found += values(held, seen)
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
                        branch = entry(words, word, gen, seen)
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


def place(_: Any, page: Any, key: str) -> tuple[Any, Any, int]:
    """The I-node of a page where *key* belongs, what it holds, and if that is a list, where its I-node would be."""
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


def values(held: Any, seen: Seen) -> list[str]:
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
        seen += (page.ref, main)
        if type(main) is list:
            todo += filter(None, main)
        else:
            found += main
    return found
