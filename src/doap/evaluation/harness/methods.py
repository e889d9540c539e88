"""Methods: the descriptors that a benchmark compares, in inference mode and with cached results."""

import importlib.metadata
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.evaluation.harness.cache import DescriptorCache, content_key
from doap.extents import check_extent
from doap.images.extraction import extract_patches
from doap.networks.baselines.sift import IN_IMAGE
from doap.networks.descriptor import Descriptor, describe_patches, device_of
from doap.networks.inference import InferenceNetwork, multiplies_bfloat16, optimize_for_inference
from doap.networks.network import PatchNetwork
from doap.networks.registry import load
from doap.networks.spatial_transformer import TransformedNetwork
from doap.types import Descriptors, Frames, Grey, Kind, Progress, no_progress
from doap.version import __version__

VERSION = 1  # part of every cache key; increase it when extraction or description changes
CHUNK_SIZE = 8192  # patches read at once
MAX_EXTRACTIONS = 8

IN_IMAGE_KEY = "image, nearest rotation"  # in place of the extent in cache keys; to change with `Sift`

# Class names in cache keys that differ from today's, so that cached descriptors stay valid.
KEY_NAMES = {"TransformedNetwork": "Transformed"}


class Selection:
    """Some patches of a set, in order, with a key of their pixels.

    Args:
        patches: Patch set.
        indices: (n,) indices of the selected patches; all by default.
    """

    def __init__(self, patches: PatchSet, indices: NDArray[np.int64] | None = None) -> None:
        self.patches = patches
        self.indices = indices

    def __len__(self) -> int:
        return len(self.patches) if self.indices is None else len(self.indices)

    def chunks(self) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
        """Yield the patches in chunks, each with its slice of the selection."""
        for start in range(0, len(self), CHUNK_SIZE):
            chunk = slice(start, min(start + CHUNK_SIZE, len(self)))
            indices = np.arange(chunk.start, chunk.stop) if self.indices is None else self.indices[chunk]
            yield chunk, self.patches.take(indices)

    @cached_property
    def key(self) -> str:
        """Content key of the pixels, computed once."""
        return content_key(*(content_key(pixels) for _, pixels in self.chunks()))


class PatchDescriber(Protocol):
    """Anything that describes patches: a `Method`, or descriptors read from files (`CsvDescriptors`)."""

    @property
    def name(self) -> str:
        """Name in tables."""

    def metadata(self) -> dict[str, Any]:
        """Return the entry of `Result.methods`."""

    def describe_patches(self, selection: Selection, progress: Progress = no_progress) -> Descriptors:
        """Return the (n, d) float32 or (n, bits / 8) uint8 descriptors of a selection."""


class PatchExtractor:
    """Extracts patches from images and keeps the last results, which other methods may need again."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._extracted: OrderedDict[tuple[str, int, float], NDArray[np.uint8]] = OrderedDict()

    def extract(self, key: str, image: Grey, frames: Frames, size: int, extent: float) -> NDArray[np.uint8]:
        """Return the (N, size, size) patches of frames; `key` identifies image and frames."""
        entry = (key, size, extent)
        if entry not in self._extracted:
            self._extracted[entry] = extract_patches(image, frames, size, extent, self.device)
            if len(self._extracted) > MAX_EXTRACTIONS:
                self._extracted.popitem(last=False)
        return self._extracted[entry]


class Method:
    """A descriptor in a comparison; a `PatchDescriber` and a `FrameDescriber`.

    Args:
        name: Name in tables, unique in the comparison.
        spec: Name or path that the user gave.
        model: Model that describes patches.
        extent: Half a patch's side in units of its frame's scale, for patches extracted from images; for a network
            with surroundings, that of the centre. None selects the model's own extent.
        extractor: Extractor shared by the methods of a comparison.
        cache: Cache shared by the methods of a comparison.
        detector: Name in `DETECTORS` of the detector whose frames are described; a model's own extent may depend on it.
    """

    def __init__(
        self,
        name: str,
        spec: str,
        model: Descriptor,
        extent: float | None,
        extractor: PatchExtractor,
        cache: DescriptorCache,
        detector: str = "",
    ) -> None:
        self.name = name
        self.spec = spec
        self.model = to_inference(model)
        self._exact = model
        self.in_image = extent is None and spec in IN_IMAGE
        self.extent = model.extent_at(extent, detector)
        self._extractor = extractor
        self._cache = cache

    @property
    def kind(self) -> Kind:
        """Kind of the descriptors: real or binary."""
        return self.model.kind

    @property
    def bytes(self) -> int:
        """Size of one descriptor in bytes; real-valued ones are float32."""
        return self.model.bytes

    @cached_property
    def key(self) -> str:
        """Content key of everything that determines the descriptor of a patch."""
        # The key of the folded weights in float32, whatever the dtype they are rounded to.
        network = optimize_for_inference(self._exact, torch.float32).network
        weights = [part for name, value in network.state_dict().items() for part in (name, value.cpu().numpy())]
        device = device_of(self.model)
        spec = self.spec if device is None else ""  # a handcrafted descriptor is identified by its name alone
        if isinstance(network, InferenceNetwork):
            mode = str(_precision(self._exact)).removeprefix("torch.")
            class_name = type(network.network).__name__
        else:
            mode = _library_versions()
            class_name = type(network).__name__
        class_name = KEY_NAMES.get(class_name, class_name)
        described_by = (VERSION, spec, class_name, self.kind, mode, device.type if device else "cpu")
        return content_key(*described_by, *_settings(self._exact.network), *weights)

    def metadata(self) -> dict[str, Any]:
        """Return the entry of `Result.methods`."""
        return {
            "name": self.name,
            "spec": self.spec,
            "kind": self.kind,
            "bytes": self.bytes,
            "dimensions": self.model.network.dimensions,
            "input_size": self.model.input_size,
            "extent": self.extent,
            "in_image": self.in_image,
            "key": self.key,
        }

    def describe_patches(self, selection: Selection, progress: Progress = no_progress) -> Descriptors:
        """Return the descriptors of some patches of a set, from the cache if they are there.

        Args:
            selection: Patches to describe.
            progress: Callback, called as `progress(done, total)` with numbers of patches.

        Returns:
            (n, d) float32 or (n, bits / 8) uint8, memory-mapped.
        """

        def chunks() -> Iterator[Descriptors]:
            for chunk, pixels in selection.chunks():
                yield describe_patches(pixels, self.model)
                progress(chunk.stop, len(selection))

        return self._cached(content_key("patches", selection.key, self.key), len(selection), chunks())

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        """Return the descriptors of the (N, 2, 3) frames of an image, from the cache if they are there."""
        key = content_key(image, frames)

        def chunks() -> Iterator[Descriptors]:
            if self.in_image:
                yield IN_IMAGE[self.spec].describe_frames(image, frames)
            else:
                patches = self._extractor.extract(key, image, frames, self.model.input_size, self.extent)
                yield describe_patches(patches, self.model)

        extent = IN_IMAGE_KEY if self.in_image else self.extent
        return self._cached(content_key("frames", key, extent, self.key), len(frames), chunks())

    def _cached(self, key: str, count: int, chunks: Iterator[Descriptors]) -> Descriptors:
        empty = describe_patches(np.zeros((0, 1, 1), np.uint8), self.model)
        shape = (count, *empty.shape[1:])
        if not count:
            return empty
        cached = self._cache.get(key)
        if cached is not None and cached.shape == shape and cached.dtype == empty.dtype:
            return cached
        return self._cache.make(key, shape, empty.dtype, map(self._check, chunks))

    def _check(self, descriptors: Descriptors) -> Descriptors:
        if not np.isfinite(descriptors).all():
            raise DoapError(f"{self.name}: some descriptors are not numbers; is the model damaged?")
        return descriptors


def to_inference(model: Descriptor) -> Descriptor:
    """Return the form of a model that benchmarks evaluate: bfloat16 where the hardware multiplies it, else float32.

    All published figures were measured with it.
    """
    return optimize_for_inference(model, _precision(model))


def _settings(network: PatchNetwork) -> tuple[str, ...]:
    """Return the settings of a network that its class and weights do not tell; none if they are the defaults."""
    if network.surroundings > 1:
        return ("small patches are padded",)  # they were resized at first
    if not isinstance(network, TransformedNetwork):
        return ()
    transformer = network.transformer
    if transformer.bounded and transformer.padding == "replicate":
        return ()  # so that cached descriptors stay valid
    return transformer.padding, "bounded" if transformer.bounded else "unbounded"


def _precision(model: Descriptor) -> torch.dtype:
    device = device_of(model)
    return torch.bfloat16 if device and multiplies_bfloat16(device.type) else torch.float32


def open_methods(
    specs: Sequence[str],
    device: str = "cpu",
    extent: float | None = None,
    cache: DescriptorCache | None = None,
    detector: str = "",
) -> list[Method]:
    """Load the descriptors to compare.

    Args:
        specs: Names and paths accepted by `doap.load`. Two models of the same name are listed by their paths.
        device: Device that computes descriptors.
        extent: Extent at which all methods extract patches from images; for a network with surroundings, that of the
            centre. By default each uses its own, and SIFT is computed in the image.
        cache: Cache of descriptors; by default in the user's cache.
        detector: Name in `DETECTORS` of the detector whose frames are described; none for sets of patches.

    Raises:
        DoapError: If a model cannot be loaded, is given twice, none is given, or the extent is invalid.
    """
    if not specs:
        raise DoapError("no model to compare; give one or more names or paths of models")
    for spec in specs:
        if specs.count(spec) > 1:
            raise DoapError(f"{spec}: given twice; give every model once")
    if extent is not None:
        check_extent(extent)
    models = [load(spec, device, fast=False) for spec in specs]
    names = [model.name for model in models]
    extractor, shared = PatchExtractor(device), cache or DescriptorCache()
    return [
        Method(model.name if names.count(model.name) == 1 else spec, spec, model, extent, extractor, shared, detector)
        for spec, model in zip(specs, models, strict=True)
    ]


def _library_versions() -> str:
    """Return the versions of the libraries that compute handcrafted descriptors."""
    versions = [__version__]
    for package in ("opencv-contrib-python-headless", "kornia"):
        try:
            versions.append(importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            versions.append("none")
    return " ".join(versions)
