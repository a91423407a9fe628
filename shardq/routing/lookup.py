"""The values of all patterns that match a topic, as of one instant.

A lookup takes no lock and waits for nobody, unless it must take a snapshot by `LockHead`.

`walk` goes from I-node to I-node, and knows how many words of the topic lead to each. A node below a `#` can be reached
after several numbers of words. `shardq.routing.many` walks what is below a `#`, with all these numbers at once. So no
node is entered twice, however many `#` a pattern has; to follow each number by itself would take exponentially many
steps.

A lookup reads several I-nodes, one after the other. To return what was true at one instant it compares the head's
`stamp`, which every change replaces (`shardq.routing.atomic`), before and after the walk. If the stamp is the same, the
result is right. If not, a writer changed the trie meanwhile, and the walk is repeated. After `MAX_TRIES` such walks the
lookup takes a snapshot, which no writer changes, and walks that. So a lookup ends after a bounded number of steps,
whatever the writers do.

`walk` is one long function because it is the hot path: a function call costs as much as a node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from shardq.routing.contents import has_value, page_get
from shardq.routing.many import matching
from shardq.routing.match import run_matches, tail_matches, tail_matches_later, values_in
from shardq.routing.nodes import BITS, FIRST_BITS, FIRST_LAST, LAST_SLOTS
from shardq.routing.topic import split

T = TypeVar("T")
NO_QUEUES: frozenset[str] = frozenset()
MAX_TRIES = 8


def consistently(head: Any, ask: Callable[[Any, str], T], text: str) -> T:
    """Return the answer of *ask*, `walk` or `interest`, about *text*, from nodes as they all were at one instant."""
    tries = MAX_TRIES
    while tries:
        stamp = head.stamp
        answer = ask(head.root.main, text)
        if head.stamp is stamp:
            return answer
        tries -= 1
    return ask(freeze(head), text)


def freeze(head: Any) -> Any:
    """Take a snapshot: the root's content at one instant, below which no node is changed any more."""
    while True:
        root = head.root
        top = root.main
        if head.renew(root, top, top):
            return top


def walk(top: Any, text: str) -> list[str]:  # noqa: C901 - see above
    """The values of the patterns below *top*, the content of a root, that match *text*; a value may be there twice."""
    page, node = top
    main = page.main
    if type(main) is list:
        bits = hash(text)
        page = main[bits & FIRST_LAST]
        bits >>= FIRST_BITS
        main = page and page.main
        while type(main) is list:
            page = main[bits & LAST_SLOTS]
            bits >>= BITS
            main = page and page.main
    found: list[str] = []
    if main:
        held = main.get(text)
        if held is not None:
            if type(held) is str:
                found.append(held)
            else:
                found += values_in(held)
    topic = text.split(".") if text else []
    size = len(topic)
    at = 0
    todo: list[Any] = []  # I-nodes still to enter, each followed by the number of words that lead to it
    while True:
        run, held, star, many, words = node.main
        node = None
        if not run or run_matches(run, topic, at):
            at += len(run)
            if many is not None:
                kind = type(many)
                if kind is str:
                    found.append(many)
                elif kind is not tuple or many[0][-2:] == ".#":
                    for part in matching(many, topic, (2 << size) - (1 << at)):
                        found += values_in(part)
                elif tail_matches_later(many[0], topic, at):
                    found += many[1:]
            if at == size:
                if held is not None:
                    found += values_in(held)
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
                                page = main[bits & LAST_SLOTS]
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
                        elif tail_matches(branch[0], topic, at + 1):
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
                    elif tail_matches(star[0], topic, at):
                        found += star[1:]
        if node is None:
            if not todo:
                return found
            at = todo.pop()
            node = todo.pop()


def interest(top: Any, text: str) -> bool:
    """Whether any pattern below *top* matches *text*. As `walk`, but it stops at the first, and collects no values."""
    literals, node = top
    return has_value(page_get(literals, text)) or any(map(has_value, matching(node, split(text), 1)))


def find_in_page(head: Any, page: Any, key: str) -> tuple[Any, Any, int]:
    """The I-node in *page* (None: the page of the literal patterns) to which *key* belongs, its content, and a slot.

    The slot is where *key*'s I-node would be if the content is a list, which then has none there.
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
        used, last = BITS, LAST_SLOTS
    return page, main, bits & last
