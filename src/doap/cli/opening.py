"""The opening of any set with a progress bar."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from doap.cli.console import counting_bar

if TYPE_CHECKING:
    from doap.datasets.sets.frame_set import FrameSet
    from doap.datasets.sets.patch_set import PatchSet
    from doap.types import Progress


def open_with_bar(path: Path) -> "PatchSet | FrameSet":
    """Open a patch set, a frame set or an official folder, with a progress bar if the latter is converted."""
    from doap.datasets.official.opening import open_dataset
    from doap.datasets.sets.frame_set import KIND, FrameSet
    from doap.datasets.sets.storage import kind_of

    if kind_of(path) == KIND:
        return FrameSet.open(path)
    with _conversion_bar() as progress:
        return open_dataset(path, progress)


def open_training_with_bar(paths: list[Path], split: str | None) -> "PatchSet | FrameSet":
    """Open the folders to train on, see `open_training_set`, with a progress bar if one is converted."""
    from doap.datasets.official.training_set import open_training_set

    with _conversion_bar() as progress:
        return open_training_set(paths, split, progress)


@contextmanager
def _conversion_bar() -> Iterator["Progress"]:
    """Yield a callback that shows a progress bar from its first call on."""
    with counting_bar() as bar:
        task = bar.add_task("converting", total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)
