"""doap: local image descriptors trained by optimising Average Precision directly.

Match two images:

    model = doap.load("doap-128")
    first, second = doap.detect_and_describe(["left.jpg", "right.jpg"], model)
    matches = doap.match(first, second)

Names are imported on first use, so that `import doap` is cheap and needs no optional dependency.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from doap.errors import DoapError
from doap.forking import use_one_thread_after_fork
from doap.version import __version__

if TYPE_CHECKING:
    from doap.datasets.official.opening import open_dataset
    from doap.datasets.sets.frame_set import FrameSet
    from doap.datasets.sets.patch_set import PatchSet
    from doap.evaluation.harness.methods import open_methods
    from doap.evaluation.harness.result import Result, read_result
    from doap.evaluation.registry import BENCHMARKS
    from doap.features import Features, Matches, WideMatches, describe_keypoints, detect_and_describe, match, match_wide
    from doap.folders import describe_folder, match_pairs, retrieve_pairs
    from doap.geometry.robust import verify
    from doap.images.detectors import DETECTORS
    from doap.images.extraction import extract_patches
    from doap.images.reading import read_grey
    from doap.matching.nearest import mutual_nearest, nearest
    from doap.networks.descriptor import Descriptor, describe_patches
    from doap.networks.registry import list_models, load, save
    from doap.objectives import AveragePrecisionLoss
    from doap.training.recipes.reading import list_recipes, read_recipe
    from doap.training.recipes.recipe import Recipe
    from doap.training.trainer import train

_MODULES = {
    # Using: image to features to matches.
    "load": "doap.networks.registry",
    "list_models": "doap.networks.registry",
    "save": "doap.networks.registry",
    "Descriptor": "doap.networks.descriptor",
    "describe_patches": "doap.networks.descriptor",
    "read_grey": "doap.images.reading",
    "DETECTORS": "doap.images.detectors",
    "extract_patches": "doap.images.extraction",
    "detect_and_describe": "doap.features",
    "describe_keypoints": "doap.features",
    "match": "doap.features",
    "match_wide": "doap.features",
    "Features": "doap.features",
    "Matches": "doap.features",
    "WideMatches": "doap.features",
    "nearest": "doap.matching.nearest",
    "mutual_nearest": "doap.matching.nearest",
    "verify": "doap.geometry.robust",
    "describe_folder": "doap.folders",
    "match_pairs": "doap.folders",
    "retrieve_pairs": "doap.folders",
    # Learning: patches to weights.
    "open_dataset": "doap.datasets.official.opening",
    "PatchSet": "doap.datasets.sets.patch_set",
    "FrameSet": "doap.datasets.sets.frame_set",
    "AveragePrecisionLoss": "doap.objectives",
    "Recipe": "doap.training.recipes.recipe",
    "list_recipes": "doap.training.recipes.reading",
    "read_recipe": "doap.training.recipes.reading",
    "train": "doap.training.trainer",
    # Evaluating: data, methods and a metric to a result.
    "BENCHMARKS": "doap.evaluation.registry",
    "open_methods": "doap.evaluation.harness.methods",
    "Result": "doap.evaluation.harness.result",
    "read_result": "doap.evaluation.harness.result",
}

__all__ = [
    "BENCHMARKS",
    "DETECTORS",
    "AveragePrecisionLoss",
    "Descriptor",
    "DoapError",
    "Features",
    "FrameSet",
    "Matches",
    "PatchSet",
    "Recipe",
    "Result",
    "WideMatches",
    "__version__",
    "describe_folder",
    "describe_keypoints",
    "describe_patches",
    "detect_and_describe",
    "extract_patches",
    "list_models",
    "list_recipes",
    "load",
    "match",
    "match_pairs",
    "match_wide",
    "mutual_nearest",
    "nearest",
    "open_dataset",
    "open_methods",
    "read_grey",
    "read_recipe",
    "read_result",
    "retrieve_pairs",
    "save",
    "train",
    "verify",
]


use_one_thread_after_fork()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'doap' has no attribute '{name}'")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
