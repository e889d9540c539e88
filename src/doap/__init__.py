"""doap: local image descriptors, trained by optimising Average Precision directly.

    model = doap.load("doap-128")
    a, b = (doap.detect_and_describe(path, model) for path in ("a.jpg", "b.jpg"))
    matches = doap.match(a, b)

Learning: photos become a `PatchSet` or a `FrameSet`, `AveragePrecisionLoss` trains a network on it.
Using: `load` a model, `detect_and_describe` images or `describe` patches, `match`.
"""

from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.features import Features, Matches, detect_and_describe, match
from doap.networks.descriptor import Descriptor, describe
from doap.networks.registry import list_models, load
from doap.objectives import AveragePrecisionLoss
from doap.version import __version__

__all__ = [
    "AveragePrecisionLoss",
    "Descriptor",
    "DoapError",
    "Features",
    "FrameSet",
    "Matches",
    "PatchSet",
    "__version__",
    "describe",
    "detect_and_describe",
    "list_models",
    "load",
    "match",
]
