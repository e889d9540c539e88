"""doap: local image descriptors, trained by optimising Average Precision directly.

    model = doap.load("doap-128")
    a, b = (doap.detect_and_describe(path, model) for path in ("a.jpg", "b.jpg"))
    matches = doap.match(a, b)

Learning: photos become a `PatchSet` or a `FrameSet`, `AveragePrecisionLoss` trains a network on it.
Using: `load` a model, `detect_and_describe` images or `describe` patches, `match`.
"""

__version__ = "0.1.0"

from doap.errors import DoapError
from doap.features import Features, Matches, detect_and_describe, match
from doap.networks.descriptor import Descriptor, describe
from doap.networks.registry import list_models, load
from doap.objectives import AveragePrecisionLoss
from doap.patches.frameset import FrameSet
from doap.patches.patchset import PatchSet

__all__ = [
    "AveragePrecisionLoss",
    "Descriptor",
    "DoapError",
    "Features",
    "FrameSet",
    "Matches",
    "PatchSet",
    "describe",
    "detect_and_describe",
    "list_models",
    "load",
    "match",
]
