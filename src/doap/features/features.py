"""Features of one image: frames and descriptors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.choices import StoredPrecision
from doap.errors import DoapError, check_whole_number, inflect
from doap.features.drawing import Picture, draw_keypoints
from doap.features.image_input import ImageLike
from doap.features.keypoint_input import frame_angles, frame_scales
from doap.features.precision import decode, encode
from doap.features.storage import check_real, load_record, require, save_record
from doap.networks.descriptor import Descriptor
from doap.types import Descriptors, Frames, Record


@dataclass(frozen=True, eq=False)
class Features:
    """Local features of one image.

    `len(features)` is the number of keypoints; `features[indices]` selects some of them by a slice, indices or a mask.

    Attributes:
        frames: (N, 2, 3) float32 affine frames; `frames[:, :, 2]` are the keypoints (x, y).
        descriptors: (N, D) float32 unit vectors, or (N, bits / 8) uint8.
        size: (height, width) of the image.
        model: Name of the model; only features of the same model can be matched.
        responses: (N,) float32 strengths of the keypoints by their detector; None if unknown.
    """

    frames: Frames
    descriptors: Descriptors
    size: tuple[int, int]
    model: str
    responses: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        for name in ("frames", "descriptors", "responses"):
            if name != "responses" or self.responses is not None:
                check_real(name, getattr(self, name))
        if self.frames.ndim != 3 or self.frames.shape[1:] != (2, 3):
            raise DoapError(f"frames must be (N, 2, 3), not {self.frames.shape}")
        count = len(self.frames)
        if self.descriptors.ndim != 2 or len(self.descriptors) != count:
            raise DoapError(f"descriptors must be ({count}, D), one row per frame, not {self.descriptors.shape}")
        if self.descriptors.dtype != np.uint8 and not np.issubdtype(self.descriptors.dtype, np.floating):
            raise DoapError(f"descriptors must be floating-point, or bits in uint8, not {self.descriptors.dtype}")
        if self.responses is not None and self.responses.shape != (count,):
            raise DoapError(f"responses must be ({count},), one per frame, not {self.responses.shape}")
        if not _is_size(self.size):
            raise DoapError(f"size must be (height, width), two whole numbers of pixels, not {self.size}")
        if not isinstance(self.model, str):
            raise DoapError(f"model must be the name of a model, not {type(self.model).__name__}")

    def __repr__(self) -> str:
        height, width = self.size
        shape = f"{self.descriptors.shape[1]} {self.descriptors.dtype}"
        return (
            f"Features({len(self)} {inflect(len(self), 'keypoint')} of {width}x{height} pixels, {shape}, {self.model})"
        )

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, indices: slice | Sequence[int] | NDArray[Any]) -> "Features":
        selected = indices if isinstance(indices, slice) else np.asarray(indices)
        if not isinstance(selected, slice) and selected.ndim != 1:
            raise DoapError(f"features are selected by a slice, (K,) indices or a (N,) mask, not by {indices!r}")
        if not isinstance(selected, slice) and not len(selected):
            selected = slice(0)
        try:
            responses = None if self.responses is None else self.responses[selected]
            return Features(self.frames[selected], self.descriptors[selected], self.size, self.model, responses)
        except (IndexError, TypeError) as error:  # other numbers than there are features, or no whole numbers
            raise DoapError(f"{len(self)} features cannot be selected in this way: {error}") from error

    @property
    def keypoints(self) -> NDArray[np.float32]:
        """Centres (x, y) of the frames, (N, 2)."""
        return self.frames[:, :, 2]

    @property
    def scales(self) -> NDArray[np.float32]:
        """Scales √|det A| of the frames in pixels, (N,); half the size of OpenCV's keypoints."""
        return frame_scales(self.frames)

    @property
    def angles(self) -> NDArray[np.float32]:
        """Orientations of the frames in degrees, 0 to 360, clockwise in the image as OpenCV's, (N,)."""
        return frame_angles(self.frames)

    def strongest(self, count: int) -> "Features":
        """Return the features of largest response, strongest first; of equal ones, the first.

        Raises:
            DoapError: If the responses are unknown, or the count is negative.
        """
        check_whole_number("the number of features", count)
        if self.responses is None:
            raise DoapError("the responses of these features are unknown; select them by index: features[indices]")
        if count < 0:
            raise DoapError(f"the number of features must not be negative: {count}")
        falling = -self.responses.astype(np.float64)  # minus an integer of NumPy may wrap around
        return self[np.argsort(falling, kind="stable")[:count]]

    def to_cv2(self) -> list[cv2.KeyPoint]:
        """Return the keypoints as OpenCV's: size = 2 scale, orientation as angle; affine shape is lost.

        `descriptors` can be used with them as they are.
        """
        responses = np.zeros(len(self)) if self.responses is None else self.responses
        columns = (self.keypoints.tolist(), (2 * self.scales).tolist(), self.angles.tolist(), responses.tolist())
        return [
            cv2.KeyPoint(x, y, size, angle, response) for (x, y), size, angle, response in zip(*columns, strict=True)
        ]

    def to_lafs(self) -> Tensor:
        """Return the frames as kornia's local affine frames, a (1, N, 2, 3) float32 tensor.

        In kornia, half the side of a patch is the scale of its LAF: `scale_laf(lafs, model.extent_for("dog"))` of
        `kornia.feature` gives the patches that doap describes for DoG keypoints.
        """
        return torch.from_numpy(np.array(self.frames, np.float32))[None]

    def draw(self, image: ImageLike, path: str | Path | None = None) -> Picture:
        """Draw the keypoints with their ellipses and orientations on their image.

        Args:
            image: The image, in any form that `detect_and_describe` takes.
            path: File to write as well: .png, .jpg or .pdf.

        Returns:
            (H, W, 3) uint8 RGB picture; large images are reduced.
        """
        return draw_keypoints(image, self.frames, self.size, path)

    def save(self, path: str | Path, precision: StoredPrecision = "float32") -> None:
        """Write the features to a NumPy archive (.npz) or an HDF5 file (.h5), atomically.

        Args:
            path: File to write; the suffix selects the format.
            precision: Number format of real-valued descriptors: "float16" halves the file, "uint8" quarters it.

        Raises:
            DoapError: For another suffix, or if binary descriptors are to be stored in a reduced precision.
        """
        save_record(path, self.to_record(precision))

    @classmethod
    def load(cls, path: str | Path, model: str | Descriptor | None = None, image: str | None = None) -> "Features":
        """Read features that `save` or `doap describe` wrote.

        Args:
            path: File to read: .npz, .h5 or .hdf5.
            model: Model that the features must come from, or its name; None accepts any.
            image: Name of the image in the HDF5 file of a folder.

        Returns:
            The features; real-valued descriptors are float32 unit vectors whatever their precision in the file.

        Raises:
            DoapError: If the file is missing, damaged, of a newer version, or holds features of another model.
        """
        where = f"{path}: {image}" if image else str(path)
        name = model.name if isinstance(model, Descriptor) else model
        return cls.from_record(load_record(path, image), where, name)

    def to_record(self, precision: StoredPrecision = "float32") -> Record:
        """Return the entries of a file; see `doap.features.storage`."""
        descriptors, step = encode(self.descriptors, precision)
        record: Record = {
            "frames": self.frames,
            "keypoints": self.keypoints,
            "descriptors": descriptors,
            "size": np.array(self.size, np.int64),
            "model": self.model,
            "precision": "binary" if self.descriptors.dtype == np.uint8 else precision,
        }
        if precision == "uint8":
            record["step"] = step
        if self.responses is not None:
            record["responses"] = self.responses
        return record

    @classmethod
    def from_record(cls, record: Record, where: str, model: str | None = None) -> "Features":
        """Return the features of the entries of a file.

        Args:
            record: Entries, as `to_record` returns them.
            where: Name of the file, and of the image in it, for messages.
            model: Name of the model that the features must come from; None accepts any.

        Raises:
            DoapError: If entries are missing or disagree, or the features come from another model.
        """
        entries: dict[str, Any] = dict(record)
        require(entries, ("frames", "descriptors", "size", "model"), where, "features")
        try:
            height, width = entries["size"].tolist()
            features = cls(
                entries["frames"], _descriptors(entries), (height, width), entries["model"], entries.get("responses")
            )
            if 0 in features.size:
                raise DoapError(f"size must be at least one pixel each, not {features.size}")
        except (DoapError, ValueError, AttributeError, TypeError) as error:
            raise DoapError(f"{where}: damaged ({error}); describe the image again") from error
        if model is not None and features.model != model:
            raise DoapError(f"{where}: features of {features.model}, not of {model}; describe the image again")
        return features


def _is_size(size: tuple[int, int]) -> bool:
    try:
        height, width = size
    except (TypeError, ValueError):  # no pair
        return False
    return _is_side(height) and _is_side(width)


def _is_side(side: object) -> bool:
    return isinstance(side, int | np.integer) and not isinstance(side, bool) and bool(side >= 0)


def _descriptors(entries: dict[str, Any]) -> Descriptors:
    """Return the descriptors of the entries of a file, as `Features` holds them."""
    stored, step = entries["descriptors"], entries.get("step", 1.0)
    check_real("descriptors", stored)
    precision = entries.get("precision", "binary" if stored.dtype == np.uint8 else "float32")
    if not isinstance(precision, str):
        raise DoapError(f"precision must be a name, not {type(precision).__name__}")
    if precision == "binary":
        return np.asarray(stored)
    if not isinstance(step, int | float) or not math.isfinite(step):
        raise DoapError("step must be a finite number")
    return decode(stored, step)
