"""The opening of any set with a progress bar."""

from pathlib import Path
from typing import TYPE_CHECKING

from doap.cli.console import counting_bar

if TYPE_CHECKING:
    from doap.datasets.sets.frame_set import FrameSet
    from doap.datasets.sets.patch_set import PatchSet


def open_with_bar(path: Path) -> "PatchSet | FrameSet":
    """Open a patch set, a frame set or an official folder, with a progress bar if the latter is converted."""
    from doap.datasets.official.opening import open_dataset
    from doap.datasets.sets.frame_set import KIND, FrameSet
    from doap.datasets.sets.storage import kind_of

    if kind_of(path) == KIND:
        return FrameSet.open(path)
    with counting_bar() as bar:
        task = bar.add_task("converting", total=None, visible=False)
        return open_dataset(path, lambda done, total: bar.update(task, completed=done, total=total, visible=True))


def open_training_with_bar(paths: list[Path], split: str | None) -> "PatchSet | FrameSet":
    """Open the folders to train on, see `open_training_set`, with a progress bar if one is converted."""
    from doap.datasets.official.training_set import open_training_set

    with counting_bar() as bar:
        task = bar.add_task("converting", total=None, visible=False)
        return open_training_set(
            paths, split, lambda done, total: bar.update(task, completed=done, total=total, visible=True)
        )
