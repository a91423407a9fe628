"""What I-nodes hold, as plain values that never change: a writer makes a new one and swaps it in.

- C-node, a tuple (run, values, star, many, words): the words that stand alone before the node branches (rolled up,
  patricia-style), the values of the pattern that ends here, the branches for `*`, for `#` and by word.
- `words` is None, sparse (a tuple: word, branch, word, branch), dense (a dict), or the I-node of a page when wide.
- Page, a hash table: a dict of up to 64, or a list of I-nodes (None for an empty one), at the top 256 by 8 bits of the
  hash, below 16 by 4 bits: one step finds a word in a wide node, two or three a literal pattern.
- A branch is an I-node or a leaf. A leaf is one value (a str), or a tuple (tail, values ...): the rest of the only
  pattern there, as text, and its values. More than 8 values are in a page, whose I-node is in `values`.
- T-nodes, `Tomb` and `TombPage`: the last content of an I-node, which never changes again.

Copying costs what a node holds, so nothing here grows beyond 64. Values are plain `str`: hashing and comparing them
runs no Python code. Sources: seed "Breaking and Entering" (branches by word, T-nodes once all branches are gone),
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
FEW: Final = 4  # a page that shrinks to so many is no page any more
SMALL: Final = 8  # values beside one another in a leaf
SPARSE: Final = 2  # words in a sparse table
WIDE: Final = 64  # what one dict may hold
FIRST_BITS, BITS = 8, 4
FIRST_LAST, LAST = 255, 15
DEPTH: Final = 56  # bits of the hash after which a page is not split any more


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
    """The rest of a pattern as text: each word after a dot."""
    return "." + ".".join(words) if words else ""


def decode(tail: str) -> list[str]:
    """The words of a tail."""
    return tail.split(".")[1:]


def tail_of(leaf: Any) -> str:
    """The leaf's tail."""
    return "" if type(leaf) is str else leaf[0]


def values_of(leaf: Any) -> tuple[str, ...]:
    """The leaf's values."""
    return (leaf,) if type(leaf) is str else leaf[1:]


def leaf_of(tail: str, values: Sequence[str]) -> Any:
    """The leaf of one pattern with these values."""
    return values[0] if not tail and len(values) == 1 else (tail, *values)


def retailed(leaf: Any, words: Sequence[str]) -> Any:
    """The leaf with another tail."""
    return leaf_of(encode(words), values_of(leaf))


# --- branches of a C-node or a page ----------------------------------------------------------------------------


def child(main: Any, key: Any) -> Any:
    """What *main* holds under *key*: a word, or the position in a list or a C-node; None for nothing.

    None, too, where *main* is not of the kind any more that it was when *key* was found: a table that grew or shrunk.
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
    """What a sparse or dense table of words holds under *word*; None for nothing, and for a page."""
    if words is None:
        return None
    if type(words) is dict:
        return words.get(word)
    if type(words) is not tuple:
        return None
    return next((words[at + 1] for at in range(0, len(words), 2) if words[at] == word), None)


def with_child(main: Any, key: Any, branch: Any, make: Make) -> Any:
    """*main* with *branch* under *key*, without the key if it is None. Never a T-node."""
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
    """The words of a C-node in the form that fits how many they are."""
    if len(table) > WIDE:
        return make(page_of(table, 0, make))
    if len(table) > SPARSE:
        return table
    return tuple(each for pair in table.items() for each in pair) or None


# --- pages -----------------------------------------------------------------------------------------------------


def page_of(table: dict[str, Any], shift: int, make: Make) -> Any:
    """The content of a page that holds *table*, *shift* bits of the hash being used up."""
    if len(table) <= WIDE or shift > DEPTH:
        return table
    parts: list[dict[str, Any]] = [{} for _ in range((LAST if shift else FIRST_LAST) + 1)]
    for key, value in table.items():
        parts[slot(hash(key), shift)][key] = value
    return [make(page_of(part, deeper(shift), make)) if part else None for part in parts]


def slot(bits: int, shift: int) -> int:
    """Which of the I-nodes of a list, *shift* bits of the hash being used up."""
    return bits >> shift & LAST if shift else bits & FIRST_LAST


def deeper(shift: int) -> int:
    """How many bits of the hash are used up one list below."""
    return shift + (BITS if shift else FIRST_BITS)


def with_entry(main: Any, shift: int, key: str, value: Any, make: Make) -> Any:
    """The page *main* with *key*; split when it grows too large."""
    if type(main) is list:
        return with_child(main, slot(hash(key), shift), make({key: value}), make)
    table = main.copy()
    table[key] = value
    return page_of(table, shift, make) if len(table) > WIDE else table


# --- what becomes of a node that lost something ----------------------------------------------------------------


def branches(main: CNode) -> list[tuple[str, Any]] | None:
    """The branches of a C-node, with their words; None if the words are in a page."""
    _, _, star, many, words = main
    found = [(key, branch) for key, branch in ((ONE, star), (MANY, many)) if branch is not None]
    if type(words) is dict:
        return found + list(words.items())
    if type(words) is tuple:
        return found + _pairs(words)
    return found if words is None else None


def rolled_up(main: CNode, rollup: bool) -> tuple[bool, Any]:
    """Whether a C-node holds one pattern at most, so that its I-node is not needed; and the leaf, None for none."""
    run, values, *_ = main
    found = branches(main)
    if found is None or len(found) > 1 or (found and (values is not None or not rollup)):
        return False, None
    if not found:
        if values is None:
            return True, None
        return (True, retailed(values, run)) if is_leaf(values) else (False, None)
    word, leaf = found[0]
    if not is_leaf(leaf) or (word == MANY and tail_of(leaf)):
        return False, None
    return True, retailed(leaf, [*run, word, *decode(tail_of(leaf))])


def lone(main: CNode) -> tuple[str, Any] | None:
    """The word and the I-node of a C-node that is only on the way to it, so that both can become one."""
    found = branches(main)
    if main[VALUES] is not None or found is None or len(found) != 1:
        return None
    word, node = found[0]
    return None if word == MANY or is_leaf(node) else (word, node)


def merged(main: CNode, word: str, below: CNode) -> CNode:
    """A C-node that is only on the way to *below*, and that one, as one."""
    return ((*main[RUN], word, *below[RUN]), *below[1:])
