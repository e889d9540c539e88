"""Choices of the command line and of the API, without NumPy: help texts and defaults need no array library."""

from typing import Literal

DETECTOR_NAMES = ("dog", "harris", "hessian", "harris-affine", "hessian-affine", "vlfeat-harris-affine")
"""Names of the keypoint detectors of `doap.images.detectors`."""

FrameShape = Literal["detected", "upright", "baumberg", "learned"]
"""Frames to describe: as detected, upright, with affine shape by Baumberg's iteration, or corrected by a network."""

RENAMED_FRAME_SHAPES = {"oriented": "detected", "affine": "baumberg"}
"""Current names of frame shapes by those of version 0.1."""

OxfordProtocol = Literal["doap", "vlbenchmarks"]
"""Rule of the Oxford benchmark by which frames take part, are matched and are counted as correct."""

HPatchesNoise = Literal["overlap", "measured"]
"""Noise of the frames in HPatches folders: as the overlaps of its paper suggest, or as measured in official patches."""

Geometry = Literal["fundamental", "homography"]
"""Geometry that relates two images: any scene, or a plane (or a rotating camera)."""

MatchGeometry = Literal["fundamental", "homography", "essential"]
"""Geometry fitted to matches; the essential matrix needs the intrinsics of the cameras."""

Precision = Literal["fast", "exact", "int8"]
"""Arithmetic of a network: the fastest floats of the device, float32 as trained, or 8-bit integers."""

StoredPrecision = Literal["float32", "float16", "uint8"]
"""Number format of real-valued descriptors in files."""

ExportFormat = Literal["onnx", "torch-export", "torchscript"]
"""Format of an exported model."""

ExportGraph = Literal["patches", "image"]
"""Input of an exported model: patches, or an image and frames."""

ExportPrecision = Literal["fp32", "fp16", "int8", "int8-without-vnni"]
"""Arithmetic of an exported network."""

CAMERA_MODELS = (
    "SIMPLE_PINHOLE",
    "PINHOLE",
    "SIMPLE_RADIAL",
    "RADIAL",
    "OPENCV",
    "OPENCV_FISHEYE",
    "FULL_OPENCV",
    "FOV",
    "SIMPLE_RADIAL_FISHEYE",
    "RADIAL_FISHEYE",
    "THIN_PRISM_FISHEYE",
)
"""Names of COLMAP's camera models, in the order of their numbers."""

CameraMode = Literal["auto", "single", "per-folder", "per-image"]
"""Which images share a camera of COLMAP; named as in pycolmap."""

PairChoice = Literal["exhaustive", "retrieval", "sequential"]
"""Pairs of a folder's images to match: all, each image with similar ones, or with those that follow it by name."""

DEFAULT_DETECTOR = "dog"
"""Keypoint detector if none is specified; where frames have no known detector, its extent is used."""

DEFAULT_EXTENT = 12.0
"""Half the side of a patch in units of its frame's scale, if none is specified."""

MAX_SEED = 2**63 - 1
"""Largest seed. Numbers are added to seeds, and the sum must fit the 64 bits that torch takes."""
