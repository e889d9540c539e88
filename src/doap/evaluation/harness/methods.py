"""What is compared: anything that `doap.load` loads, in the device's fastest mode, nothing described twice."""

import importlib.metadata
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.evaluation.harness.cache import DescriptorCache, content_key
from doap.images.extraction import extract_patches
from doap.networks.baselines.sift import Sift
from doap.networks.descriptor import Descriptor, describe, device_of
from doap.networks.fast import Fast, fastest
from doap.networks.registry import load
from doap.types import Descriptors, Frames, Grey, Kind, Progress, no_progress
from doap.version import __version__

VERSION = (
    1  # of describing: raise it when patches are cut or described otherwise, so that old descriptors are left alone
)
AT_ONCE = 8192  # patches read at a time
CUTS_KEPT = 8

# Computed in the image itself, where OpenCV has all pixels, unless an extent is asked for.
IN_IMAGE = {"sift": Sift(), "rootsift": Sift(root=True)}


class Selection:
    """Some patches of a set, in order, named by their pixels.

    Args:
        patches: the set.
        indices: (n,) of those to describe; all by default.
    """

    def __init__(self, patches: PatchSet, indices: NDArray[np.int64] | None = None) -> None:
        self.patches = patches
        self.indices = indices

    def __len__(self) -> int:
        return len(self.patches) if self.indices is None else len(self.indices)

    def chunks(self) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
        """The patches, some thousand at a time, with their places."""
        for start in range(0, len(self), AT_ONCE):
            part = slice(start, min(start + AT_ONCE, len(self)))
            wanted = np.arange(part.start, part.stop) if self.indices is None else self.indices[part]
            yield part, self.patches.take(wanted)

    @cached_property
    def key(self) -> str:
        """Of the pixels; read once."""
        return content_key(*(content_key(pixels) for _, pixels in self.chunks()))


class Cutter:
    """Cuts patches out of images, and keeps the last ones for the next descriptor that wants the same."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._kept: OrderedDict[tuple[str, int, float], NDArray[np.uint8]] = OrderedDict()

    def cut(self, key: str, image: Grey, frames: Frames, size: int, extent: float) -> NDArray[np.uint8]:
        """The (N, size, size) patches of frames; `key` names image and frames."""
        wanted = (key, size, extent)
        if wanted not in self._kept:
            self._kept[wanted] = extract_patches(image, frames, size, extent, self.device)
            if len(self._kept) > CUTS_KEPT:
                self._kept.popitem(last=False)
        return self._kept[wanted]


class Method:
    """A descriptor in a comparison; a `FrameDescriber`.

    Args:
        name: in tables; no other of the comparison has it.
        given: what the user called it.
        model: what describes.
        extent: half a patch's side in units of its frame's scale, for patches cut from images; None is the model's own.
        cutter: shared by the methods of a comparison.
        cache: likewise.
        detector: of `DETECTORS`, whose frames are described; a model's own extent may differ between them.
    """

    def __init__(
        self,
        name: str,
        given: str,
        model: Descriptor,
        extent: float | None,
        cutter: Cutter,
        cache: DescriptorCache,
        detector: str = "",
    ) -> None:
        self.name = name
        self.given = given
        self.model = fastest(model)
        self.in_image = extent is None and given in IN_IMAGE
        self.extent = model.extent_for(detector) if extent is None else extent
        self._cutter = cutter
        self._cache = cache

    @property
    def kind(self) -> Kind:
        """Whether it gives vectors or bits."""
        return self.model.kind

    @property
    def bytes(self) -> int:
        """Of one descriptor, real ones as float32."""
        return self.model.bytes

    @cached_property
    def key(self) -> str:
        """Of all that decides the descriptor of a patch."""
        network = self.model.network
        weights = [part for name, value in network.state_dict().items() for part in (name, value.cpu().numpy())]
        mode = ("bfloat16" if network.in_bfloat16 else "float32") if isinstance(network, Fast) else _library_versions()
        device = device_of(self.model)
        kind_of_network = type(network.network if isinstance(network, Fast) else network).__name__
        name = self.given if device is None else ""  # of a handcrafted one, all there is to know
        return content_key(VERSION, name, kind_of_network, self.kind, mode, device.type if device else "cpu", *weights)

    def about(self) -> dict[str, Any]:
        """For the record of a result."""
        return {
            "name": self.name,
            "given": self.given,
            "kind": self.kind,
            "bytes": self.bytes,
            "dimensions": self.model.network.dimensions,
            "input_size": self.model.input_size,
            "extent": self.extent,
            "in_image": self.in_image,
            "key": self.key,
        }

    def describe_patches(self, selection: Selection, progress: Progress = no_progress) -> Descriptors:
        """Describe patches of a set, or find them described: (n, d) float32 or (n, bits / 8) uint8, memory-mapped.

        Args:
            selection: which.
            progress: told the patches done, and how many there are.
        """

        def fill(array: Descriptors) -> None:
            for part, pixels in selection.chunks():
                array[part] = describe(pixels, self.model)
                progress(part.stop, len(selection))

        return self._remember(content_key("patches", selection.key, self.key), len(selection), fill)

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        """Describe the (N, 2, 3) frames of an image: likewise."""
        place = content_key(image, frames)

        def fill(array: Descriptors) -> None:
            if self.in_image:
                array[:] = IN_IMAGE[self.given].describe_frames(image, frames)
            else:
                patches = self._cutter.cut(place, image, frames, self.model.input_size, self.extent)
                array[:] = describe(patches, self.model)

        return self._remember(
            content_key("frames", place, "image" if self.in_image else self.extent, self.key), len(frames), fill
        )

    def _remember(self, key: str, count: int, fill: Callable[[Descriptors], None]) -> Descriptors:
        empty = describe(np.zeros((0, 1, 1), np.uint8), self.model)
        shape = (count, *empty.shape[1:])
        if not count:
            return empty
        found = self._cache.get(key)
        if found is not None and found.shape == shape and found.dtype == empty.dtype:
            return found
        return self._cache.make(key, shape, empty.dtype, fill)


def open_methods(
    given: Sequence[str],
    device: str = "cpu",
    extent: float | None = None,
    cache: DescriptorCache | None = None,
    detector: str = "",
) -> list[Method]:
    """Load what is to be compared.

    Args:
        given: names and paths that `doap.load` takes. Two models of one name are told apart by their paths.
        device: where to describe.
        extent: at which patches are cut from images, for all; by default each at its own, and SIFT in the image.
        cache: where descriptors are kept; in the user's cache by default.
        detector: of `DETECTORS`, whose frames are described; none where patches come cut.

    Raises:
        DoapError: for one that cannot be loaded, or is given twice.
    """
    if not given:
        raise DoapError("no model to compare; give some with --models")
    for name in given:
        if given.count(name) > 1:
            raise DoapError(f"--models: {name} is given twice")
    models = [load(name, device) for name in given]
    names = [model.name for model in models]
    cutter, shared = Cutter(device), cache or DescriptorCache()
    return [
        Method(model.name if names.count(model.name) == 1 else wanted, wanted, model, extent, cutter, shared, detector)
        for wanted, model in zip(given, models, strict=True)
    ]


def _library_versions() -> str:
    """What a handcrafted descriptor is computed by."""
    versions = [__version__]
    for package in ("opencv-contrib-python-headless", "kornia"):
        try:
            versions.append(importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            versions.append("none")
    return " ".join(versions)
