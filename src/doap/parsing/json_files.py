"""JSON that others may have written or damaged: every fault is a ValueError, and depth and size are bounded."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

MAX_BYTES = 1 << 28
BLOCK_BYTES = 1 << 20
MAX_DEPTH = 64  # the deepest of our own files has 6 levels


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not UTF-8, not JSON, nested too deeply or too large; the message is one line.
    """
    with path.open("rb") as file:
        # In blocks: a buffer of the whole limit would be allocated for every small file.
        blocks = list(islice(iter(lambda: file.read(BLOCK_BYTES), b""), MAX_BYTES // BLOCK_BYTES + 1))
    return parse_json(b"".join(blocks))


def parse_json(content: str | bytes) -> Any:
    """Parse JSON; the errors are those of `read_json`.

    Example:
        >>> parse_json('{"epoch": 3}')
        {'epoch': 3}
    """
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    try:
        value = json.loads(content if isinstance(content, str) else content.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None
    if _is_deep(value):
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    return value


def _is_deep(value: Any) -> bool:
    """Return whether lists and objects are nested too deeply for recursive functions."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True
