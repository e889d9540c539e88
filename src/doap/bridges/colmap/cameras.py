"""Cameras of COLMAP: models, parameters, and the focal length in the EXIF data of an image."""

import math
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from doap.choices import CAMERA_MODELS, CameraMode
from doap.errors import DoapError, check_choice, to_floats
from doap.folders.settings import Identity
from doap.images.reading import open_image, stored_size

DEFAULT_FOCAL = 1.2  # in units of the longer side, as COLMAP's
FILM_DIAGONAL = 43.27  # mm, to which COLMAP 4 relates "FocalLengthIn35mmFilm"
MILLIMETRES = {2: 25.4, 3: 10.0}  # per unit of EXIF's FocalPlaneResolutionUnit: inch, centimetre


@dataclass(frozen=True)
class CameraModel:
    """A camera model.

    Attributes:
        focal_lengths: Number of focal lengths, 1 or 2; they come first, then the principal point.
        distortion: Initial values of the other parameters.
        is_perspective: Whether it is a pinhole camera up to a small distortion; the others are fisheye lenses.
    """

    focal_lengths: int
    distortion: tuple[float, ...] = ()
    is_perspective: bool = True

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.focal_lengths + 2 + len(self.distortion)


MODELS = (
    CameraModel(1),
    CameraModel(2),
    CameraModel(1, (0.0,)),
    CameraModel(1, (0.0,) * 2),
    CameraModel(2, (0.0,) * 4),
    CameraModel(2, (0.0,) * 4, is_perspective=False),
    CameraModel(2, (0.0,) * 8),
    CameraModel(2, (0.01,), is_perspective=False),
    CameraModel(1, (0.0,), is_perspective=False),
    CameraModel(1, (0.0,) * 2, is_perspective=False),
    CameraModel(2, (0.0,) * 8, is_perspective=False),
)
"""Models by COLMAP's numbers; `CAMERA_MODELS` are their names."""


@dataclass(frozen=True)
class CameraSettings:
    """Cameras of new images.

    Attributes:
        model: Name of a camera model of COLMAP.
        params: Its parameters, the same for all cameras. By default the focal length is that of the EXIF data, or 1.2
            times the longer side.
        mode: Which images share a camera: "auto" for those with equal device and focal length in their EXIF data,
            "single", "per-folder" or "per-image". Images of different sizes never do.
    """

    model: str = "SIMPLE_RADIAL"
    params: tuple[float, ...] | None = None
    mode: CameraMode = "auto"

    def __post_init__(self) -> None:
        check_choice("camera model", self.model, CAMERA_MODELS)
        check_choice("camera mode", self.mode, get_args(CameraMode))
        size = MODELS[self.number].size
        if self.params is not None:
            object.__setattr__(self, "params", to_floats("camera parameters", self.params))
        if self.params is not None and len(self.params) != size:
            raise DoapError(f"camera model {self.model} has {size} parameters, not {len(self.params)}")
        if self.params is not None and not (np.isfinite(self.params).all() and min(self._focal_lengths) > 0):
            given = ",".join(map(str, self.params))
            raise DoapError(f"camera parameters {given}: must be finite, with focal lengths above 0")

    @property
    def number(self) -> int:
        """COLMAP's number of the model."""
        return CAMERA_MODELS.index(self.model)

    @property
    def _focal_lengths(self) -> tuple[float, ...]:
        return (self.params or ())[: MODELS[self.number].focal_lengths]

    def identity(self) -> Identity:
        """Return what decides the cameras of images."""
        params = None if self.params is None else ",".join(map(repr, self.params))
        return {"camera_model": self.model, "camera_params": params, "camera_mode": self.mode}


@dataclass(frozen=True)
class Camera:
    """A camera as COLMAP stores it.

    Attributes:
        model: COLMAP's number of the model.
        width: Width of the images in pixels.
        height: Height of the images in pixels.
        params: Parameters of the model.
        has_prior_focal: Whether the focal length is known, and not a guess.
    """

    model: int
    width: int
    height: int
    params: tuple[float, ...]
    has_prior_focal: bool

    def intrinsics(self, *, assumed: bool = False) -> NDArray[np.float64] | None:
        """Return the (3, 3) matrix of a perspective camera, without distortion; None for others.

        Args:
            assumed: Whether to return it also if the focal length is not known but assumed.
        """
        if not ((self.has_prior_focal or assumed) and 0 <= self.model < len(MODELS)):
            return None
        model = MODELS[self.model]
        if not model.is_perspective or len(self.params) != model.size:
            return None
        fx, fy = self.params[0], self.params[model.focal_lengths - 1]
        cx, cy = self.params[model.focal_lengths : model.focal_lengths + 2]
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])


@dataclass(frozen=True)
class ImageCamera:
    """What an image file says about its camera.

    Attributes:
        size: (width, height) in pixels as stored, without the rotation of EXIF.
        focal_length: In pixels; None if unknown.
        device: Maker and model; None if unknown.
    """

    size: tuple[int, int]
    focal_length: float | None
    device: str | None


def read_image_camera(path: Path) -> ImageCamera:
    """Read the size and the EXIF data of an image that has been described."""
    with open_image(path, path) as image:
        try:
            main = image.getexif()
            exif = {**main, **main.get_ifd(0x8769)}
        except Exception:  # damaged EXIF data cause all kinds of exceptions
            exif = {}
        size = stored_size(image)
    device = " ".join(str(exif[tag]).strip("\0 ") for tag in (0x010F, 0x0110) if tag in exif)
    return ImageCamera(size, _focal_length(exif, size), device or None)


def new_camera(image: ImageCamera, settings: CameraSettings) -> Camera:
    """Return the camera of an image."""
    width, height = image.size
    model = MODELS[settings.number]
    if settings.params is not None:
        return Camera(settings.number, width, height, settings.params, True)
    focal = image.focal_length or DEFAULT_FOCAL * max(image.size)
    params = (focal,) * model.focal_lengths + (width / 2, height / 2) + model.distortion
    return Camera(settings.number, width, height, params, image.focal_length is not None)


def sharing_key(name: str, image: ImageCamera, mode: CameraMode) -> tuple[object, ...]:
    """Return a key that is equal for images of one camera."""
    if mode == "single":
        return image.size
    if mode == "per-folder":
        return image.size, str(PurePosixPath(name).parent)
    if mode == "per-image" or image.device is None or image.focal_length is None:
        return image.size, None, name
    return image.size, image.device, image.focal_length


def parse_params(text: str) -> tuple[float, ...]:
    """Read parameters as COLMAP writes them, "1200,800,600,0".

    Raises:
        DoapError: If these are not numbers.
    """
    try:
        return tuple(float(part) for part in re.split(r"\s*,\s*", text.strip()))
    except ValueError as error:
        raise DoapError(f"--camera-params {text}: must be numbers separated by commas") from error


def _focal_length(exif: dict[int, Any], size: tuple[int, int]) -> float | None:
    """Return the focal length in pixels by the rules of COLMAP 4, without its table of sensor widths."""
    film = _number(exif, 0xA405)
    if film:
        return film / FILM_DIAGONAL * math.hypot(*size)
    focal, pixels, per_unit = (_number(exif, tag) for tag in (0x920A, 0xA002, 0xA20E))
    unit = MILLIMETRES.get(int(_number(exif, 0xA210) or 0))
    if not (focal and pixels and per_unit and unit):
        return None
    return focal / (pixels / per_unit * unit) * max(size)


def _number(exif: dict[int, Any], tag: int) -> float | None:
    """Return a positive number of the EXIF data; None if there is none."""
    try:
        value = float(exif[tag])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    return value if 0 < value < float("inf") else None
