"""doap inside hloc: an extractor and a matcher for `hloc.extract_features.main` and `hloc.match_features.main`."""

import functools
import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from doap.bridges.hloc.values import bit_value, features_name, match_scores, to_hloc
from doap.choices import DEFAULT_DETECTOR
from doap.errors import DoapError
from doap.features import Features, detect_and_describe, match
from doap.folders.settings import identify_model
from doap.networks import DEFAULT_MODEL, split_length
from doap.networks.descriptor import Descriptor, pack_bits
from doap.networks.registry import WEIGHTS_FOLDER, find_weights, list_models, load

Conf = dict[str, Any]
"""A configuration of hloc."""

MAX_KEYPOINTS = 4096  # per image, as hloc's configurations of SuperPoint
DIGITS = 8  # of the SHA-256 of weights, in names of files
RESIZE_MAX = 1600  # pixels on the longer side, as hloc's configuration of SIFT
EXTRACTOR_OPTIONS: Conf = {
    "model_name": DEFAULT_MODEL,
    "detector": DEFAULT_DETECTOR,
    "frames": "detected",
    "max_keypoints": MAX_KEYPOINTS,
    "min_response": 0.0,
}
MATCHER_OPTIONS: Conf = {"mutual": True, "ratio": None, "max_distance": None}


def make_conf(model: str, max_keypoints: int = MAX_KEYPOINTS, resize_max: int = RESIZE_MAX) -> Conf:
    """Return a configuration for `hloc.extract_features.main`.

    Args:
        model: Name of a model, or path of weights; NAME@64 for a prefix. The output of weights that are not shipped has
            the name on their card and the first digits of their SHA-256.
        max_keypoints: Number of strongest keypoints per image.
        resize_max: Longest side at which hloc gives images to the extractor; larger ones are reduced.

    Raises:
        DoapError: If there are no such weights.

    Example:
        >>> make_conf("doap-256b")["output"]
        'feats-doap-256b-n4096-r1600'
    """
    return {
        "output": f"{features_name(_unique_name(model))}-n{max_keypoints}-r{resize_max}",
        "model": {"name": "doap", "model_name": model, "max_keypoints": max_keypoints},
        "preprocessing": {"grayscale": True, "resize_max": resize_max},
    }


def _unique_name(model: str) -> str:
    """Return a name that no other weights have: that of a shipped model or baseline, else with digits of a SHA-256."""
    if split_length(model)[0] in list_models():
        return model
    name, checksum = identify_model(model)
    is_shipped = not checksum or find_weights(model).resolve().parent == WEIGHTS_FOLDER.resolve()
    return name if is_shipped else f"{name}-{checksum[:DIGITS]}"


confs: dict[str, Conf] = {name: make_conf(name) for name in list_models() if "demo" not in name}
"""Configurations of the shipped models, as those in `hloc.extract_features.confs`."""

matcher_confs: dict[str, Conf] = {"doap-mutual": {"output": "matches-doap-mutual", "model": {"name": "doap"}}}
"""Configuration of the exact matcher of doap, as those in `hloc.match_features.confs`."""


def register() -> None:
    """Make doap known to hloc: modules `hloc.extractors.doap` and `hloc.matchers.doap`, and entries in hloc's `confs`.

    Raises:
        DoapError: If hloc is not installed.

    Example:
        >>> from hloc import extract_features  # doctest: +SKIP
        >>> from doap.bridges import hloc as doap_hloc
        >>> doap_hloc.register()  # doctest: +SKIP
        >>> extract_features.main(extract_features.confs["doap-256b"], images, outputs)  # doctest: +SKIP
    """
    try:
        base = importlib.import_module("hloc.utils.base_model").BaseModel
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "hloc":
            raise
        raise DoapError(
            "hloc is not installed; clone github.com/cvg/Hierarchical-Localization and install it by pip"
        ) from error
    for package, task, methods, entries in (
        ("hloc.extractors", "hloc.extract_features", ExtractorMethods, confs),
        ("hloc.matchers", "hloc.match_features", MatcherMethods, matcher_confs),
    ):
        module = ModuleType(f"{package}.doap")
        # hloc takes the one class of a module that says to be defined there.
        module.Doap = type("Doap", (methods, base), {"__module__": module.__name__})  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        importlib.import_module(package).doap = module  # type: ignore[attr-defined]
        importlib.import_module(task).confs.update(entries)


class ExtractorMethods:
    """What an extractor of hloc adds to its `BaseModel`: images to local features."""

    required_inputs = ("image",)
    detection_noise = 1.0

    def _init(self, conf: Conf) -> None:
        """Check the configuration; the model is loaded for the device of the first image."""
        self.options = _read_options(conf, EXTRACTOR_OPTIONS)
        self.model_name = str(self.options.pop("model_name"))
        if self.options["max_keypoints"] == -1:  # all, in hloc
            self.options["max_keypoints"] = None
        _, self.checksum = identify_model(self.model_name)
        _load(self.model_name, self.checksum, torch.device("cpu"))

    def _forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        """Detect and describe keypoints of a (1, 1, H, W) or (1, 3, H, W) image in 0..1."""
        image = data["image"][0]
        # Interpolation can leave 0..1 by rounding.
        model = _load(self.model_name, self.checksum, image.device)
        features = detect_and_describe(image.clamp(0, 1), model, **self.options)
        responses = np.zeros(len(features)) if features.responses is None else features.responses
        # hloc rounds float32, and only that, to float16: keypoints would move by half a pixel beyond 1,024 pixels, and
        # responses of some detectors overflow.
        return {
            "keypoints": torch.from_numpy(features.keypoints.astype(np.float64))[None],
            "scores": torch.from_numpy(responses.astype(np.float64))[None],
            "scales": torch.from_numpy(features.scales)[None],
            "oris": torch.from_numpy(features.angles)[None],
            "descriptors": torch.from_numpy(to_hloc(features.descriptors))[None],
        }


class MatcherMethods:
    """What a matcher of hloc adds to its `BaseModel`: mutual nearest neighbours, of equally near ones the first."""

    required_inputs = ("descriptors0", "descriptors1")

    def _init(self, conf: Conf) -> None:
        self.options = _read_options(conf, MATCHER_OPTIONS)

    def _forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        """Match (1, D, N) descriptors, bits by Hamming distance."""
        values = [data[name][0].T for name in self.required_inputs]
        bits = values[0].shape[1] if all(_are_bits(one) for one in values) else None
        first, second = (_features(one if bits is None else pack_bits(one > 0)) for one in values)
        matched = match(first, second, geometry=None, device=values[0].device, **self.options)
        matches = torch.full((len(first),), -1, device=values[0].device)
        scores = torch.zeros(len(first), device=values[0].device)
        items = torch.from_numpy(matched.indices).to(matches.device)
        matches[items[:, 0]] = items[:, 1]
        scores[items[:, 0]] = torch.from_numpy(match_scores(matched.distances, bits)).to(scores)
        return {"matches0": matches[None], "matching_scores0": scores[None]}


def _read_options(conf: Conf, defaults: Conf) -> Conf:
    """Return the options of a configuration, completed.

    Raises:
        DoapError: For an unknown option.
    """
    for name in conf:
        if name not in (*defaults, "name"):
            raise DoapError(f"no option {name!r} of doap in hloc; known are {', '.join(defaults)}")
    return {name: conf.get(name, default) for name, default in defaults.items()}


@functools.cache
def _load(name: str, checksum: str, device: torch.device) -> Descriptor:  # noqa: ARG001 - weights may be replaced
    return load(name, device)


def _are_bits(descriptors: Tensor) -> bool:
    return bool((descriptors.abs() == bit_value(descriptors.shape[1])).all())


def _features(descriptors: Tensor) -> Features:
    """Return features with these descriptors, at no place of an image."""
    rows = descriptors.cpu().numpy()
    return Features(np.zeros((len(rows), 2, 3), np.float32), rows, (0, 0), "hloc")
