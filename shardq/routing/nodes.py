"""The contents of I-nodes: plain values that never change. A writer makes a new one and swaps it in.

- A C-node is a tuple (run, values, star, many, words). `run` has the words that the pattern must have before the node
  branches (nodes with one branch are rolled up into one, as in a patricia trie), `values` the values of the pattern
  that ends here. `star`, `many` and `words` are the branches for `*`, for `#` and by word.
- `words` is None, a sparse table (a tuple: word, branch, word, branch), a dense one (a dict), or when it is wide the
  I-node of a page.
- A page is a hash table: a dict of up to 64 keys, or a list of I-nodes of such pages (None for an empty one). The list
  at the top has 256 places, by 8 bits of the hash, those below have 16, by 4 bits. So a word of a wide node is found in
  one step, a literal pattern in two or three.
- A branch is an I-node or a leaf. A leaf stands for the only pattern there is below: it is one value (a str), or a
  tuple (tail, values ...), in which the tail is the rest of the pattern as text. If there are more than 8 values, they
  are in a page, whose I-node is in `values`.
- T-nodes, `Tomb` and `TombPage`, are the last content of an I-node, which never changes again.

Copying takes as long as a node is large, so no node grows beyond 64. Values are plain `str`, so hashing and comparing
them runs no Python code. Sources: seed "Breaking and Entering" (branches by word, T-nodes once all branches are gone),
seed "Optimising Subscriptions in nanomsg" (patricia, sparse and dense nodes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from shardq.routing.topic import MANY, ONE

CNode: TypeAlias = tuple[Any, ...]
Make: TypeAlias = Callable[[Any], Any]

RUN, VALUES, STAR, HASH, WORDS = range(5)
EMPTY: Final[CNode] = ((), None, None, None, None)
SMALL_NODE: Final = 4  # a page that shrinks to this number of keys becomes a table or a leaf
SMALL_LIST: Final = 8  # values in a leaf; more are in a page
SPARSE_NODE: Final = 2  # words in a sparse table
WIDE_NODE: Final = 64  # keys in a dict
FIRST_BITS, BITS = 8, 4
FIRST_LAST, LAST_SLOTS = 255, 15
DEPTH: Final = 56  # bits of the hash; a page with fewer is not split any more


class Tomb(tuple[Any, ...]):
    """A C-node that is the last content of its I-node."""

    __slots__ = ()


class TombPage(dict[str, Any]):
    """A page that is the last content of its I-node."""

    __slots__ = ()


def is_tomb(main: Any) -> bool:
    """Whether *main* is a T-node."""
    kind = type(main)
    return kind is Tomb or kind is TombPage


def is_leaf(branch: Any) -> bool:
    """Whether *branch* is a leaf, not an I-node."""
    return type(branch) is str or type(branch) is tuple


# --- leaves ----------------------------------------------------------------------------------------------------


def encode(words: Sequence[str]) -> str:
    """*words*, the rest of a pattern, as a tail: text with a dot before each word."""
    return "." + ".".join(words) if words else ""


def decode(tail: str) -> list[str]:
    """The words of a tail."""
    return tail.split(".")[1:]


def tail_of(leaf: Any) -> str:
    """The tail of a leaf."""
    return "" if type(leaf) is str else leaf[0]


def values_of(leaf: Any) -> tuple[str, ...]:
    """The values of a leaf."""
    return (leaf,) if type(leaf) is str else leaf[1:]


def leaf_of(tail: str, values: Sequence[str]) -> Any:
    """The leaf with this tail and these values."""
    return values[0] if not tail and len(values) == 1 else (tail, *values)


def with_tail(leaf: Any, words: Sequence[str]) -> Any:
    """The same leaf with *words* as its tail."""
    return leaf_of(encode(words), values_of(leaf))


# --- branches of a C-node or a page ----------------------------------------------------------------------------


def child(main: Any, key: Any) -> Any:
    """Return the child of *main* under *key*, a word, or a position in a list or in a C-node; None if there is none.

    Also None if *main* is of another kind now than when *key* was found, because a table grew or shrank.
    """
    if isinstance(main, dict):
        return main.get(key) if type(key) is not int else None
    if type(key) is int:
        return main[key] if type(main[key]) is not dict else None
    if type(main) is list:
        return None
    if key == ONE:
        return main[STAR]
    return main[HASH] if key == MANY else word_in(main[WORDS], key)


def word_in(words: Any, word: str) -> Any:
    """The branch for *word* in a sparse or dense table; None if there is none, or if *words* is a page."""
    if words is None:
        return None
    if type(words) is dict:
        return words.get(word)
    if type(words) is not tuple:
        return None
    return next((words[at + 1] for at in range(0, len(words), 2) if words[at] == word), None)


def with_child(main: Any, key: Any, branch: Any, make: Make) -> Any:
    """*main* with *branch* under *key*, or without the key if *branch* is None; the result is never a T-node."""
    if type(main) is list:
        copy = main.copy()
        copy[key] = branch
        return copy
    if isinstance(main, dict):
        return _changed(dict(main), key, branch)
    if type(key) is int:
        return (*main[:key], branch, *main[key + 1 :])
    run, values, star, many, words = main
    if key == ONE:
        return (run, values, branch, many, words)
    if key == MANY:
        return (run, values, star, branch, words)
    return (run, values, star, many, _with_word(words, key, branch, make))


def _changed(table: dict[str, Any], key: str, branch: Any) -> dict[str, Any]:
    if branch is None:
        table.pop(key, None)
    else:
        table[key] = branch
    return table


def _with_word(words: Any, word: str, branch: Any, make: Make) -> Any:
    table = words.copy() if type(words) is dict else dict(_pairs(words))
    return table_of(_changed(table, word, branch), make)


def _pairs(sparse: tuple[Any, ...] | None) -> list[tuple[str, Any]]:
    return list(zip(sparse[::2], sparse[1::2], strict=True)) if sparse else []


def table_of(table: dict[str, Any], make: Make) -> Any:
    """A table of words in the form for its size: None, sparse, dense, or a page."""
    if len(table) > WIDE_NODE:
        return make(page_of(table, 0, make))
    if len(table) > SPARSE_NODE:
        return table
    return tuple(each for pair in table.items() for each in pair) or None


# --- pages -----------------------------------------------------------------------------------------------------


def page_of(table: dict[str, Any], shift: int, make: Make) -> Any:
    """The content of a page with the keys of *table*. The lists above it have used *shift* bits of the hash."""
    if len(table) <= WIDE_NODE or shift > DEPTH:
        return table
    parts: list[dict[str, Any]] = [{} for _ in range((LAST_SLOTS if shift else FIRST_LAST) + 1)]
    for key, value in table.items():
        parts[slot(hash(key), shift)][key] = value
    return [make(page_of(part, deeper(shift), make)) if part else None for part in parts]


def slot(bits: int, shift: int) -> int:
    """The place in a list for a key with the hash *bits*. The lists above it have used *shift* bits."""
    return bits >> shift & LAST_SLOTS if shift else bits & FIRST_LAST


def deeper(shift: int) -> int:
    """How many bits of the hash are used one list further down."""
    return shift + (BITS if shift else FIRST_BITS)


def with_entry(main: Any, shift: int, key: str, value: Any, make: Make) -> Any:
    """The page *main* with *value* under *key*; a page that grows too large is split."""
    if type(main) is list:
        return with_child(main, slot(hash(key), shift), make({key: value}), make)
    table = main.copy()
    table[key] = value
    return page_of(table, shift, make) if len(table) > WIDE_NODE else table


# --- after a removal -------------------------------------------------------------------------------------------


def branches(main: CNode) -> list[tuple[str, Any]] | None:
    """The branches of a C-node with their words; None if the words are in a page."""
    _, _, star, many, words = main
    found = [(key, branch) for key, branch in ((ONE, star), (MANY, many)) if branch is not None]
    if type(words) is dict:
        return found + list(words.items())
    if type(words) is tuple:
        return found + _pairs(words)
    return found if words is None else None


def rolled_up(main: CNode, rollup: bool) -> tuple[bool, Any]:
    """Whether a C-node has one pattern at most, so that a leaf can replace its I-node; and the leaf, None for none."""
    run, values, *_ = main
    found = branches(main)
    if found is None or len(found) > 1 or (found and (values is not None or not rollup)):
        return False, None
    if not found:
        if values is None:
            return True, None
        return (True, with_tail(values, run)) if is_leaf(values) else (False, None)
    word, leaf = found[0]
    if not is_leaf(leaf) or (word == MANY and tail_of(leaf)):
        return False, None
    return True, with_tail(leaf, [*run, word, *decode(tail_of(leaf))])


def only_child(main: CNode) -> tuple[str, Any] | None:
    """The word and the I-node of the only branch of a C-node without values, with which it can be merged; or None."""
    found = branches(main)
    if main[VALUES] is not None or found is None or len(found) != 1:
        return None
    word, node = found[0]
    return None if word == MANY or is_leaf(node) else (word, node)


def merged(main: CNode, word: str, below: CNode) -> CNode:
    """The C-node *main*, whose only branch, for *word*, leads to *below*, merged with *below*."""
    return ((*main[RUN], word, *below[RUN]), *below[1:])
