"""Damage to the content of a file, chosen by a seed and described by plain lists that JSON can hold.

A mutation is a list of its kind and its arguments. Positions count modulo the length of the content, so that every list
applies to every content, also after a part of it was removed.

    ["flip", at, bit]              one bit
    ["set", at, hex]               bytes that replace as many
    ["insert", at, hex]            bytes in between
    ["drop", at, count]            bytes left out
    ["repeat", at, count, times]   a block that stands several times
    ["cut", at]                    the end left out
    ["word", number, text]         a number, word or mark of a text that is replaced
"""

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

Mutation = list[Any]

EDGE = 160  # bytes at the start and the end of a file where headers are
WORD = re.compile(rb"[-+]?[0-9][0-9.eE+-]*|[A-Za-z_][\w.-]*|[^\s\w]")
INTEGERS = (0, 1, -1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 31, 1 << 40, (1 << 63) - 1)
TEXTS = (
    "", "0", "-1", "1", "0.5", "1e999", "-1e999", "nan", "inf", "1e-320", "99999999999999999999", "9223372036854775807",
    "-9223372036854775808", "4294967296", "null", "true", "[]", "{}", '""', '"', "'", "\x00", "\n", ",", ";", "\t",
    "..", "../../x", "/etc/passwd", "\\", "é", "\ufeff", "\u2028", "%s", "$(x)", "<x>", "<!ENTITY", "&a", "*a",
    "!!python/x", "x" * 300, "9" * 5000, "[" * 3000, "{" * 200, "1," * 500, "1 " * 500, "a: " * 100,
)  # fmt: skip


def choose_mutations(seed: str, content: bytes, is_text: bool) -> list[Mutation]:
    """Choose one to four mutations of a content."""
    generator = random.Random(seed)
    return [_choose(generator, content, is_text) for _ in range(generator.choice((1, 1, 1, 2, 2, 3, 4)))]


def apply_mutations(content: bytes, mutations: Sequence[Mutation]) -> bytes:
    """Return a damaged content."""
    for kind, *arguments in mutations:
        content = _APPLY[kind](content, *arguments)
    return content


def _choose(generator: random.Random, content: bytes, is_text: bool) -> Mutation:
    if is_text and generator.random() < 0.7:
        words = max(1, len(WORD.findall(content)))
        return ["word", generator.randrange(words), generator.choice(TEXTS)]
    length = max(1, len(content))
    where = generator.random()
    if where < 0.4:
        at = generator.randrange(min(EDGE, length))
    elif where < 0.55:
        at = length - 1 - generator.randrange(min(EDGE, length))
    else:
        at = generator.randrange(length)
    kind = generator.choice(("flip", "flip", "set", "set", "set", "insert", "drop", "repeat", "cut"))
    size = generator.choice((1, 2, 4, 8, 16, 64, 512))
    if kind == "flip":
        return ["flip", at, generator.randrange(8)]
    if kind in ("set", "insert"):
        return [kind, at, _integer(generator).hex()]
    if kind == "drop":
        return ["drop", at, size]
    return ["repeat", at, size, generator.choice((1, 2, 20))] if kind == "repeat" else ["cut", at]


def _integer(generator: random.Random) -> bytes:
    """Return an extreme integer of a random size and order of bytes."""
    size = generator.choice((1, 2, 4, 4, 8))
    value = generator.choice(INTEGERS) & ((1 << 8 * size) - 1)
    return value.to_bytes(size, generator.choice(("little", "big")))


def _within(content: bytes, at: int) -> int:
    return at % max(1, len(content))


def _flip(content: bytes, at: int, bit: int) -> bytes:
    at = _within(content, at)
    return content[:at] + bytes(byte ^ (1 << bit) for byte in content[at : at + 1]) + content[at + 1 :]


def _set(content: bytes, at: int, value: str) -> bytes:
    at, new = _within(content, at), bytes.fromhex(value)
    return content[:at] + new + content[at + len(new) :]


def _insert(content: bytes, at: int, value: str) -> bytes:
    at = _within(content, at)
    return content[:at] + bytes.fromhex(value) + content[at:]


def _drop(content: bytes, at: int, count: int) -> bytes:
    at = _within(content, at)
    return content[:at] + content[at + count :]


def _repeat(content: bytes, at: int, count: int, times: int) -> bytes:
    at = _within(content, at)
    return content[:at] + content[at : at + count] * times + content[at:]


def _cut(content: bytes, at: int) -> bytes:
    return content[: _within(content, at)]


def _word(content: bytes, number: int, text: str) -> bytes:
    words = list(WORD.finditer(content))
    if not words:
        return content + text.encode("utf-8", "surrogatepass")
    start, end = words[number % len(words)].span()
    return content[:start] + text.encode("utf-8", "surrogatepass") + content[end:]


_APPLY: dict[str, Callable[..., bytes]] = {
    "flip": _flip,
    "set": _set,
    "insert": _insert,
    "drop": _drop,
    "repeat": _repeat,
    "cut": _cut,
    "word": _word,
}
