"""Matches of two images, and the geometry estimated from them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.choices import MatchGeometry
from doap.errors import DoapError, inflect
from doap.features.drawing import Picture, draw_image_matches
from doap.features.features import Features
from doap.features.image_input import ImageLike
from doap.features.storage import check_real, load_record, require, save_record
from doap.geometry.robust import Cameras, verify
from doap.types import Record

Points = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Matches:
    """Matches of two images and the geometry estimated from them.

    Attributes:
        indices: (P, 2) indices into the features of the first and of the second image, ascending in the first.
        distances: (P,) distances between the descriptors: Euclidean, or the number of different bits.
        second_distances: (P,) distances of the first image's descriptors to their second nearest in the second image;
            infinite if there is no second.
        inliers: (P,) bool, matches that agree with the geometry; all True if none was asked for, all False if the
            matches agree on none.
        geometry: The geometry that was estimated; None if none was asked for.
        matrix: (3, 3) fundamental matrix, homography or essential matrix from the first to the second image; None if
            none was asked for or the matches do not agree on one.
        rotation: (3, 3) rotation of the second camera relative to the first, with an essential matrix only.
        translation: (3,) direction of its translation, a unit vector; see `doap.verify`.
    """

    indices: NDArray[np.int64]
    distances: NDArray[np.float64]
    second_distances: NDArray[np.float64]
    inliers: NDArray[np.bool_]
    geometry: MatchGeometry | None = None
    matrix: NDArray[np.float64] | None = None
    rotation: NDArray[np.float64] | None = None
    translation: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        for name in ("indices", "distances", "second_distances"):
            check_real(name, getattr(self, name))
        if self.indices.ndim != 2 or self.indices.shape[1] != 2:
            raise DoapError(f"indices of matches must be (P, 2), not {self.indices.shape}")
        count = len(self.indices)
        if not isinstance(self.inliers, np.ndarray) or self.inliers.dtype != np.bool_:
            raise DoapError("inliers must be an array of bool")
        if not np.issubdtype(self.indices.dtype, np.integer) or (self.indices < 0).any():
            raise DoapError("indices of matches must be integers of at least 0")
        for name in ("distances", "second_distances", "inliers"):
            if getattr(self, name).shape != (count,):
                raise DoapError(f"{name} must be ({count},), one per match, not {getattr(self, name).shape}")
        if self.geometry is not None and not isinstance(self.geometry, str):
            raise DoapError(f"geometry must be a name or None, not {type(self.geometry).__name__}")
        for name, shape in (("matrix", (3, 3)), ("rotation", (3, 3)), ("translation", (3,))):
            value = getattr(self, name)
            if value is not None:
                check_real(name, value)
                if value.shape != shape:
                    raise DoapError(f"{name} must be {shape}, not {value.shape}")

    def __repr__(self) -> str:
        inliers = int(self.inliers.sum())
        matches = f"{len(self)} {inflect(len(self), 'match', 'matches')}"
        return f"Matches({matches}, {inliers} {inflect(inliers, 'inlier')}, {self.geometry})"

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def scores(self) -> NDArray[np.float64]:
        """Distinctiveness of the matches, 1 - distance / second distance, (P,) in 0..1.

        1 if there is no second or the distance is 0, 0 if the second is as near as the first, also if both are 0.
        """
        seconds = self.second_distances
        ratios = np.divide(self.distances, seconds, out=np.ones(len(self)), where=seconds > 0)
        return np.asarray(1 - ratios.clip(0, 1))

    def points(self, first: Features, second: Features) -> tuple[Points, Points]:
        """Return the points (x, y) of all matches in the first and in the second image, each (P, 2)."""
        return _points(self.indices, first, second)

    def verified_points(self, first: Features, second: Features) -> tuple[Points, Points]:
        """Return the points (x, y) of the inliers in the first and in the second image, each (K, 2)."""
        return _points(self.indices[self.inliers], first, second)

    def verify(
        self,
        first: Features,
        second: Features,
        geometry: MatchGeometry = "fundamental",
        threshold: float = 1.5,
        cameras: Cameras | None = None,
    ) -> "Matches":
        """Return the same matches with another geometry, without searching again; see `doap.verify`."""
        result = verify(*self.points(first, second), second.size, geometry, threshold, cameras)
        return replace(
            self,
            inliers=result.inliers,
            geometry=geometry,
            matrix=result.matrix,
            rotation=result.rotation,
            translation=result.translation,
        )

    def to_cv2(self) -> list[cv2.DMatch]:
        """Return all matches as OpenCV's: the first image is the query, the second the train image."""
        rows = zip(self.indices.tolist(), self.distances.tolist(), strict=True)
        return [cv2.DMatch(query, train, distance) for (query, train), distance in rows]

    def draw(
        self,
        first_image: ImageLike,
        second_image: ImageLike,
        first: Features,
        second: Features,
        path: str | Path | None = None,
        title: str | None = None,
    ) -> Picture:
        """Draw the images side by side, with lines between the matches.

        If a geometry was asked for, only the verified matches are drawn, none if the matches agree on no geometry.

        Args:
            first_image: The first image, in any form that `detect_and_describe` takes.
            second_image: The second image.
            first: Features of the first image.
            second: Features of the second image.
            path: File to write as well: .png, .jpg or .pdf.
            title: Text above the images; by default the number of matches and the model.

        Returns:
            (H, W, 3) uint8 RGB picture; see `doap.features.drawing.render_matches` for its size.
        """
        points = self.verified_points(first, second)
        if title is None:
            title = f"{self.count_text()} ({first.model})"
        return draw_image_matches((first_image, second_image), (first.size, second.size), points, title, path)

    def count_text(self, kind: str = "") -> str:
        """Return the number of matches, and of the verified ones if they were verified; `kind` may be "mutual"."""
        count = " ".join(filter(None, (str(len(self)), kind, inflect(len(self), "match", "matches"))))
        return count if self.geometry is None else f"{int(self.inliers.sum())} verified of {count}"

    def save(self, path: str | Path) -> None:
        """Write the matches to a NumPy archive (.npz) or an HDF5 file (.h5), atomically."""
        save_record(path, self.to_record())

    @classmethod
    def load(cls, path: str | Path, pair: str | None = None) -> "Matches":
        """Read matches that `save` or `doap match` wrote.

        Args:
            path: File to read: .npz, .h5 or .hdf5.
            pair: Name of the pair in the HDF5 file of a folder.

        Raises:
            DoapError: If the file is missing, damaged or of a newer version.
        """
        where = f"{path}: {pair}" if pair else str(path)
        return cls.from_record(load_record(path, pair, "pair"), where)

    def to_record(self) -> Record:
        """Return the entries of a file; see `doap.features.storage`."""
        record: Record = {name: getattr(self, name) for name in (*ARRAYS, "scores")}
        return record | {name: getattr(self, name) for name in OPTIONAL if getattr(self, name) is not None}

    @classmethod
    def from_record(cls, record: Record, where: str) -> "Matches":
        """Return the matches of the entries of a file; `where` names it in messages."""
        entries: dict[str, Any] = dict(record)
        require(entries, ARRAYS, where, "matches")
        try:
            return cls(*(entries[name] for name in ARRAYS), *(entries.get(name) for name in OPTIONAL))
        except (DoapError, AttributeError, TypeError) as error:
            raise DoapError(f"{where}: damaged ({error}); match the images again") from error


ARRAYS = ("indices", "distances", "second_distances", "inliers")
OPTIONAL = ("geometry", "matrix", "rotation", "translation")


def _points(indices: NDArray[np.int64], first: Features, second: Features) -> tuple[Points, Points]:
    try:
        return first.keypoints[indices[:, 0]], second.keypoints[indices[:, 1]]
    except IndexError as error:
        raise DoapError(f"these are not the features that were matched: {error}") from error
