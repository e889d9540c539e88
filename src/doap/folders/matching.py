"""Pairs of images of a collection to matches on disk, by all cores."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np
from numpy.typing import NDArray

from doap.choices import MatchGeometry
from doap.errors import DoapError, check_choice, to_floats
from doap.folders.collection import FeatureCollection, cached_features
from doap.folders.match_store import MatchCollection, MatchStore
from doap.folders.pairs import Pair, in_blocks, to_pair
from doap.folders.settings import MODEL, Identity
from doap.locking import only_writer
from doap.parallel import EngineName, open_engine
from doap.thresholds import check_inlier_threshold, check_thresholds
from doap.types import Progress, Record, no_progress

if TYPE_CHECKING:
    from doap.features import Features, Matches

MAX_TASK = 32  # pairs that a worker matches at a time
TASKS_PER_WORKER = 8  # at least, so that all workers end at about the same time


@dataclass(frozen=True)
class MatchSettings:
    """Settings of `match_pairs`; see `doap.match`.

    Attributes:
        mutual: Keep only pairs that are each other's nearest neighbours.
        ratio: Largest ratio of the distance to that of the second nearest neighbour; None for no test.
        max_distance: Largest distance; None for any.
        geometry: Geometry that verifies the matches; None for none.
        threshold: Largest error of an inlier, in pixels.
        intrinsics: Focal lengths fx, fy and principal point cx, cy of all images in pixels, for "essential".
    """

    mutual: bool = True
    ratio: float | None = None
    max_distance: float | None = None
    geometry: MatchGeometry | None = "fundamental"
    threshold: float = 1.5
    intrinsics: tuple[float, float, float, float] | None = None

    def __post_init__(self) -> None:
        if self.geometry is not None:
            check_choice("geometry", self.geometry, get_args(MatchGeometry), "None")
        if (self.geometry == "essential") != (self.intrinsics is not None):
            raise DoapError("the essential matrix, and no other geometry, needs the intrinsics fx, fy, cx, cy")
        if self.intrinsics is not None:
            self._set_intrinsics(self.intrinsics)
        check_thresholds(self.ratio, self.max_distance)
        check_inlier_threshold(self.threshold)
        # Numbers of one type: 2 and 2.0 must not have different stamps, and JSON has no numbers of NumPy.
        object.__setattr__(self, "mutual", bool(self.mutual))
        for name in ("ratio", "max_distance", "threshold"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, float(getattr(self, name)))

    def _set_intrinsics(self, given: Iterable[float]) -> None:
        from doap.geometry.robust import check_cameras

        intrinsics = to_floats("intrinsics", given)
        if len(intrinsics) != 4:
            raise DoapError(f"intrinsics must be four numbers, fx, fy, cx, cy, not {intrinsics}")
        object.__setattr__(self, "intrinsics", intrinsics)
        check_cameras("essential", self.cameras)

    @property
    def cameras(self) -> NDArray[np.float64] | None:
        """The intrinsics as a (3, 3) matrix, None if there are none."""
        if self.intrinsics is None:
            return None
        fx, fy, cx, cy = self.intrinsics
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])

    def match(self, first: "Features", second: "Features", device: str = "cpu") -> "Matches":
        """Match the features of two images; neighbours are searched on a device."""
        from doap.features import match

        return match(
            first,
            second,
            mutual=self.mutual,
            ratio=self.ratio,
            max_distance=self.max_distance,
            geometry=self.geometry,
            threshold=self.threshold,
            cameras=self.cameras,
            device=device,
        )

    def identity(self) -> Identity:
        """Return what decides the matches of given features."""
        values = asdict(self)
        return {**values, "intrinsics": ",".join(map(repr, self.intrinsics)) if self.intrinsics else None}


@dataclass(frozen=True)
class PairTask:
    """Pairs to match in a worker, and the stamps of their images."""

    features: Path
    pairs: tuple[Pair, ...]
    stamps: dict[str, str]
    settings: MatchSettings


@dataclass
class MatchSummary:
    """What `match_pairs` did.

    Attributes:
        matched: Number of pairs matched by this run.
        unchanged: Number of pairs that an earlier run had matched.
        verified: Number of verified matches of each of these pairs, in their order.
        others: Number of pairs in the output that were not given; their matches are kept.
    """

    matched: int
    unchanged: int
    verified: list[int]
    others: int


def match_pairs(
    features: str | Path,
    pairs: Iterable[Sequence[str]],
    output: str | Path,
    settings: MatchSettings | None = None,
    *,
    engine: EngineName = "local",
    workers: int | None = None,
    force: bool = False,
    progress: Progress = no_progress,
) -> MatchSummary:
    """Match pairs of images whose features are stored, and store the matches.

    After an interruption, the next call continues: pairs whose features and settings are unchanged are not matched
    again. The output does not depend on the engine, the number of workers or interruptions, byte for byte.

    Args:
        features: Features of a folder, as `describe_folder` writes them.
        pairs: Names of the two images of each pair; see `read_pairs`, `all_pairs` and `retrieve_pairs`.
        output: HDF5 file to write (.h5).
        settings: Tests and geometry; by default those of `MatchSettings`.
        engine: "local" for processes of this machine, "ray" for a Ray cluster on which the features have the same path.
        workers: Number of processes; by default one per core.
        force: Replace matches of another model or of other settings in the output.
        progress: Called with the numbers of finished and of all pairs to match.

    Raises:
        DoapError: If features are missing or damaged, or the output holds other matches or cannot be written.

    Example:
        >>> from doap.folders import FeatureCollection, all_pairs, match_pairs
        >>> names = FeatureCollection("features.h5").names  # doctest: +SKIP
        >>> match_pairs("features.h5", all_pairs(names), "matches.h5").matched  # doctest: +SKIP
        8128
    """
    settings = settings or MatchSettings()
    collection = FeatureCollection(features)
    wanted = list(dict.fromkeys(map(to_pair, pairs)))
    if not wanted:
        raise DoapError(f"{features}: no pair to match; at least two images with features are needed")
    stamps = pair_stamps(wanted, collection, settings.identity())
    identity = {**settings.identity(), MODEL: collection[wanted[0][0]].model}
    if Path(output).resolve() == Path(features).resolve():
        raise DoapError(f"{output}: holds the features that are matched; choose another output")
    store = MatchStore(Path(output))
    with only_writer(store.target), open_engine(engine, workers) as pool:
        store.open(identity, force)
        remaining = in_blocks(pair for pair in wanted if store.stamp(pair) != stamps[pair])
        size = min(MAX_TASK, max(1, len(remaining) // (TASKS_PER_WORKER * pool.workers)))
        source = iter(remaining)
        groups = iter(lambda: tuple(islice(source, size)), ())
        tasks = [_task(collection, group, settings) for group in groups]
        done = 0
        progress(0, len(remaining))
        for task, records in zip(tasks, pool.map(match_task, tasks), strict=True):
            stamped = [{**one, "stamp": stamps[pair]} for pair, one in zip(task.pairs, records, strict=True)]
            store.save(task.pairs, stamped)
            done += len(task.pairs)
            progress(done, len(remaining))
        store.finish()
    counts = MatchCollection(output).verified_counts()
    return MatchSummary(
        len(remaining), len(wanted) - len(remaining), [counts[pair] for pair in wanted], len(counts) - len(wanted)
    )


def _task(collection: FeatureCollection, pairs: tuple[Pair, ...], settings: MatchSettings) -> PairTask:
    stamps = {name: collection.stamps[name] for pair in pairs for name in pair}
    return PairTask(collection.path.absolute(), pairs, stamps, settings)


def match_task(task: PairTask) -> list[Record]:
    """Match some pairs; runs in a worker."""
    records = []
    for pair in task.pairs:
        first, second = (cached_features(task.features, name, task.stamps[name]) for name in pair)
        records.append(_record(task.settings.match(first, second)))
    return records


def _record(matches: "Matches") -> Record:
    """Return the entries to store: without what follows from others, and in half the size."""
    record = {name: value for name, value in matches.to_record().items() if name != "scores"}
    return record | {
        "indices": matches.indices.astype(np.int32),
        "distances": matches.distances.astype(np.float32),
        "second_distances": matches.second_distances.astype(np.float32),
        "verified": int(matches.inliers.sum()),
    }


def pair_stamps(pairs: Iterable[Pair], collection: FeatureCollection, settings: Identity) -> dict[Pair, str]:
    """Return for each pair a digest of its features and of the settings: it changes when it has to be matched again.

    Raises:
        DoapError: If features of an image are missing.
    """
    # The stamps of the features depend on the model already.
    identity = json.dumps({name: value for name, value in settings.items() if name != MODEL}, sort_keys=True)
    stamps = {}
    for first, second in pairs:
        for name in (first, second):
            if name not in collection.stamps:
                raise DoapError(f"{collection.path}: no features of {name}; describe it or remove its pairs")
        content = "\n".join((identity, first, second, collection.stamps[first], collection.stamps[second]))
        stamps[first, second] = hashlib.sha256(content.encode()).hexdigest()[:32]
    return stamps
