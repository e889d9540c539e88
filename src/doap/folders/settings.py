"""What the features of an image depend on: the model, the settings and the file."""

import hashlib
import json
import math
import operator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from doap.choices import DEFAULT_DETECTOR, DETECTOR_NAMES, RENAMED_FRAME_SHAPES, FrameShape, Precision, StoredPrecision
from doap.errors import DoapError, check_choice, check_number, check_path
from doap.networks import DEFAULT_MODEL

Identity = dict[str, str | int | float | None]
"""Name and value of everything that features of a collection, or matches of pairs, have in common."""

MODEL = "model"  # the entry of an identity that names the model


@dataclass(frozen=True)
class DescribeSettings:
    """Settings of `describe_folder`.

    Attributes:
        model: Shipped model, baseline, or path of a .safetensors file, as `doap.load` takes it; NAME@64 for a prefix.
        precision: Arithmetic of the network: "fast", "exact" or "int8".
        detector: Name of a keypoint detector, see `doap.DETECTORS`.
        frames: "detected", "upright", "baumberg" or "learned".
        max_keypoints: Number of strongest keypoints per image; None keeps all.
        min_response: Smallest response of a keypoint, in the units of the detector; see `doap.detect_and_describe`.
        max_size: Longest side in pixels at which images are described; larger ones are reduced. None reduces none.
        store: Number format of real-valued descriptors in the output.
        exif_rotation: Describe images upright as their EXIF data say; otherwise as their pixels are stored.
    """

    model: str = DEFAULT_MODEL
    precision: Precision = "fast"
    detector: str = DEFAULT_DETECTOR
    frames: FrameShape = "detected"
    max_keypoints: int | None = 2000
    min_response: float = 0.0
    max_size: int | None = None
    store: StoredPrecision = "float32"
    exif_rotation: bool = True

    def __post_init__(self) -> None:
        check_path("model", self.model)
        object.__setattr__(self, "model", str(self.model))
        check_choice("detector", self.detector, DETECTOR_NAMES)
        for name, choices in (("precision", Precision), ("frames", FrameShape), ("store", StoredPrecision)):
            check_choice(name, getattr(self, name), get_args(choices))
        check_number("min_response", self.min_response)
        if not 0 <= self.min_response < math.inf:
            raise DoapError(f"min_response must be at least 0 and finite, not {self.min_response}")
        # Numbers of one type: 0 and 0.0 must not have different stamps, and JSON has no numbers of NumPy.
        object.__setattr__(self, "min_response", float(self.min_response))
        object.__setattr__(self, "exif_rotation", bool(self.exif_rotation))
        for name in ("max_keypoints", "max_size"):
            value = getattr(self, name)
            if value is None:
                continue
            try:
                object.__setattr__(self, name, operator.index(value))
            except TypeError:
                raise DoapError(f"{name} must be a whole number, or None, not {value!r}") from None
            if value < 1:
                raise DoapError(f"{name} must be at least 1, not {value}")
            if value >= 1 << 31:
                raise DoapError(f"{name} must be less than {1 << 31:,}, or None, not {value:,}")

    def identity(self) -> Identity:
        """Return what decides the features: the settings, with the name and the SHA-256 of the model for its path.

        Raises:
            DoapError: If there is no such model, or its descriptors are bits and `store` is a number format.
        """
        name, checksum = identify_model(self.model)
        if self.store != "float32" and _is_binary(self.model):
            raise DoapError(
                f"store {self.store}: for real-valued descriptors; the bits of {name} are stored as they are"
            )
        identity: Identity = {**asdict(self), "model": name, "model_sha256": checksum}
        return {**identity, "frames_sha256": _frames_checksum()} if self.frames == "learned" else identity


def identify_model(name_or_path: str) -> tuple[str, str]:
    """Return the name of a model and the SHA-256 of its weights, which is empty for a handcrafted baseline.

    Raises:
        DoapError: If there is no such model.
    """
    from doap.networks import split_length
    from doap.networks.baselines import list_baselines
    from doap.networks.registry import find_card, find_weights, load

    card = find_card(name_or_path)
    name = card.name if card else load(name_or_path, fast=False).name
    if split_length(name_or_path)[0] in list_baselines():
        return name, ""
    return name, hashlib.sha256(find_weights(name_or_path).read_bytes()).hexdigest()


def _is_binary(name_or_path: str) -> bool:
    from doap.networks.registry import load

    return load(name_or_path, fast=False).kind == "binary"


def _frames_checksum() -> str:
    """Return the SHA-256 of the shipped network that corrects frames."""
    from doap.networks.frames.loading import DEFAULT_FRAMES, read_frame_card

    return read_frame_card(DEFAULT_FRAMES).sha256


def check_identity(output: Path, old: Identity, new: Identity, content: str, is_complete: bool = True) -> None:
    """Check that what is already in an output was made with the same model and settings.

    Args:
        output: The output.
        old: Settings of its content.
        new: Settings of this run.
        content: "features" or "matches", for the message.
        is_complete: Whether the run that made it has ended; otherwise its results are hidden beside the output.

    Raises:
        DoapError: If they differ; the message names the first difference.
    """
    for name in new:
        recorded = old.get(name, new[name] if name == MODEL else None)  # earlier matches name no model
        if new[name] in (recorded, RENAMED_FRAME_SHAPES.get(str(recorded)) if name == "frames" else recorded):
            continue
        if name == MODEL:
            difference = f"of {old.get(name)}"
        elif name == "frames_sha256":
            difference = "of another network that corrects frames"
        elif name == "model_sha256":
            difference = f"of other weights named {old.get('model')}"
        else:
            difference = f"with {name} = {old.get(name)}, not {new[name]}"
        holds = f"holds {content}" if is_complete else f"an unfinished run made {content}"
        raise DoapError(f"{output}: {holds} {difference}; choose another output, or --force to replace them")


def file_stamp(paths: list[Path], identity: Identity) -> str:
    """Return a digest of the size and time of files, and of the settings: it changes when features have to be redone.

    Raises:
        OSError: If a file cannot be read.
    """
    files = [(status.st_size, status.st_mtime_ns) for status in (path.stat() for path in paths)]
    return hashlib.sha256(json.dumps([identity, files], sort_keys=True).encode()).hexdigest()[:32]
