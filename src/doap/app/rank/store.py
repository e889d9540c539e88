"""Pairs of visitors, in memory: a bounded number, the least recently used is dropped first."""

import secrets
import threading
from collections import OrderedDict

from doap.app.rank.pairs import EXAMPLES, RankPair, example_pair
from doap.errors import DoapError

EXAMPLE = "example:"


class PairStore:
    """Pairs by key: "example:NAME" for the examples, a random key for those of visitors.

    Args:
        limit: Number of pairs of visitors to keep.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pairs: OrderedDict[str, RankPair] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, pair: RankPair) -> str:
        """Keep a pair and return its key."""
        key = secrets.token_urlsafe(16)
        with self._lock:
            self._pairs[key] = pair
            while len(self._pairs) > self._limit:
                self._pairs.popitem(last=False)
        return key

    def get(self, key: str) -> RankPair:
        """Return a pair.

        Raises:
            DoapError: If it is no longer kept.
        """
        name = key.removeprefix(EXAMPLE)
        if key.startswith(EXAMPLE) and name in EXAMPLES:
            return example_pair(name)
        with self._lock:
            if key not in self._pairs:
                raise DoapError("these pictures are no longer in memory; choose them again")
            self._pairs.move_to_end(key)
            return self._pairs[key]

    def remove(self, key: str) -> None:
        """Forget a pair; unknown keys are ignored."""
        with self._lock:
            self._pairs.pop(key, None)
