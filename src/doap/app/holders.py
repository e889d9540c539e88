"""Who still uses which uploaded file.

Gradio names uploads by their content: visitors who choose the same picture, in whichever tab, share one file.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from doap.app.settings import AppSettings

Tab = Literal["match", "rank", "learn"]


class UploadHolders:
    """Uploaded files by the visitors and tabs that use them.

    Args:
        limit: Number of pairs of visitor and tab that are kept; the least recent are dropped.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._paths: OrderedDict[tuple[str, Tab], set[Path]] = OrderedDict()
        self._lock = threading.Lock()

    def hold(self, visitor: str, tab: Tab, paths: Iterable[str | Path]) -> None:
        """Take note of the files that a visitor uses in a tab, instead of earlier ones."""
        with self._lock:
            self._paths[visitor, tab] = {Path(path) for path in paths}
            self._paths.move_to_end((visitor, tab))
            while len(self._paths) > self._limit:
                self._paths.popitem(last=False)

    def release(self, visitor: str) -> None:
        """Forget a visitor who left."""
        with self._lock:
            for key in [key for key in self._paths if key[0] == visitor]:
                del self._paths[key]

    def delete(self, paths: Iterable[Path]) -> None:
        """Delete files that nobody uses; Gradio deletes the others when they are old."""
        with self._lock:
            held = set().union(*self._paths.values())
            for path in paths:
                if path not in held:
                    path.unlink(missing_ok=True)


@lru_cache(4)
def open_holders(settings: AppSettings) -> UploadHolders:
    """Return the holders of a page, the same for all tabs."""
    return UploadHolders(settings.max_sessions * len(get_args(Tab)))
