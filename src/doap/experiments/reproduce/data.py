"""The folder of data sets that tables and figures are reproduced from."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from doap.datasets.download.catalogue import CATALOGUE
from doap.datasets.official.hpatches_tasks import find_split
from doap.datasets.official.image_sequences import find_sequences
from doap.datasets.official.opening import open_dataset
from doap.datasets.official.romepatches import HALVES
from doap.errors import DoapError
from doap.evaluation.phototour.pair_test import open_test
from doap.experiments.reproduce.targets import Target
from doap.images.reading import read_grey
from doap.types import StepProgress, no_step_progress

SPLIT = "a"  # of HPatches, as in the paper


@dataclass(frozen=True)
class DataFolder:
    """A folder with one subfolder per data set, as `doap data download` makes it.

    Attributes:
        folder: The folder.
        is_look_alike: Whether its sets are made from other photos, in the official formats.
        is_reduced: Whether its sets are the small copies of `quick.py`.
    """

    folder: Path
    is_look_alike: bool = False
    is_reduced: bool = False

    def path(self, name: str) -> Path:
        """Return the folder of a data set."""
        return self.folder / name

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the names of data sets that have no folder here."""
        return [name for name in names if not self.path(name).is_dir()]

    def explain_missing(self, target: Target) -> str:
        """Return one line: the data sets that a target lacks and the command that gets them; empty if it has all."""
        missing = self.missing(target.datasets)
        if not missing:
            return ""
        listed = f"{target.name}: needs {', '.join(target.datasets)} in {self.folder}, and {', '.join(missing)} "
        listed += "is missing" if len(missing) == 1 else "are missing"
        if not set(missing) <= set(CATALOGUE):
            return f"{listed}; make the sets with doap data look-alike"
        return f"{listed}; get {'it' if len(missing) == 1 else 'them'} with {self._download_command(missing)}"

    def check(self, names: Iterable[str], progress: StepProgress = no_step_progress) -> None:
        """Open each data set, so that damaged or incomplete ones are reported before anything is trained.

        Args:
            names: Names of data sets.
            progress: Callback, called as `progress(step, done, total)`.

        Raises:
            DoapError: If a data set is incomplete or damaged; one line that names it.
        """
        for name in names:
            with self.advising(name):
                self._check_one(name, progress)

    @contextmanager
    def advising(self, name: str) -> Iterator[None]:
        """Add to an error in the block, which reads a data set, how to get the set again."""
        try:
            yield
        except DoapError as error:
            if self.is_reduced:
                advice = f"remove {self.path(name)}, which is made again"
            elif self.is_look_alike:
                advice = "make the sets again with doap data look-alike"
            else:
                advice = f"check or complete it with {self._download_command([name])}"
            raise DoapError(f"{error}; {advice}") from error

    def _check_one(self, name: str, progress: StepProgress) -> None:
        path = self.path(name)
        if name == "oxford":
            images = [image for sequence in find_sequences(path) for image in sequence.images]
            for number, image in enumerate(images):
                progress("checking oxford", number, len(images))
                read_grey(image)
        elif name == "hpatches-sequences":
            find_sequences(path)
        elif name.startswith("phototour-"):
            open_test(path, partial(progress, f"converting {name}"))
        else:
            split = find_split(path, SPLIT) if name == "hpatches" else None
            sequences = (*split.training_sequences(), *split.test) if split else HALVES
            open_dataset(path, partial(progress, f"converting {name}"), sequences)

    def _download_command(self, names: Iterable[str]) -> str:
        return f"doap data download {' '.join(names)} -o {self.folder}"
