"""What the server remembers of each visitor's last matches; the oldest are forgotten."""

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache

from doap.app.match.pair import MatchOptions, MethodResult
from doap.app.match.pictures import Picture
from doap.app.settings import AppSettings


@dataclass(frozen=True, eq=False)
class MatchSession:
    """The last matches of a visitor.

    Attributes:
        pictures: The two pictures.
        options: What the visitor chose.
        results: One result per method.
        token: Secret name in links of downloads.
    """

    pictures: tuple[Picture, Picture]
    options: MatchOptions
    results: tuple[MethodResult, ...]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(16))


class SessionStore:
    """Sessions of a limited number of visitors.

    Args:
        limit: Number of sessions that are kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: OrderedDict[str, MatchSession] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def put(self, visitor: str, session: MatchSession) -> None:
        """Remember the matches of a visitor instead of earlier ones."""
        with self._lock:
            self._sessions[visitor] = session
            self._sessions.move_to_end(visitor)
            while len(self._sessions) > self._limit:
                self._sessions.popitem(last=False)

    def get(self, visitor: str) -> MatchSession | None:
        """Return the matches of a visitor; None if there are none, or they were forgotten."""
        with self._lock:
            return self._sessions.get(visitor)

    def find(self, token: str) -> MatchSession | None:
        """Return the matches with this secret name."""
        with self._lock:
            return next((one for one in self._sessions.values() if one.token == token), None)

    def drop(self, visitor: str) -> MatchSession | None:
        """Forget a visitor, and return what was remembered."""
        with self._lock:
            return self._sessions.pop(visitor, None)


@lru_cache(4)
def open_store(settings: AppSettings) -> SessionStore:
    """Return the store of a page, the same for the tab and for the downloads."""
    return SessionStore(settings.max_sessions)
