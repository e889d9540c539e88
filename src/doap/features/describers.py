"""Methods that describe frames of an image."""

from dataclasses import dataclass
from typing import Protocol

from doap.choices import DEFAULT_DETECTOR
from doap.images.extraction import extract_patches
from doap.networks.descriptor import Descriptor, describe_patches
from doap.types import Descriptors, Frames, Grey, Kind


class FrameDescriber(Protocol):
    """Learned or handcrafted method that describes frames of an image."""

    @property
    def name(self) -> str:
        """Name in tables and messages."""

    @property
    def kind(self) -> Kind:
        """Kind of the descriptors: real vectors or bits."""

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        """Describe (N, 2, 3) frames of a grey image.

        Returns:
            (N, D) float32 unit vectors, or (N, bits / 8) uint8.
        """


@dataclass(frozen=True)
class ModelDescriber:
    """`FrameDescriber` of a patch model.

    Patches are extracted at the extent that the model's card gives for DoG frames.
    """

    model: Descriptor

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name

    @property
    def kind(self) -> Kind:
        """Kind of the model."""
        return self.model.kind

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        """Extract the patches of the frames and describe them."""
        patches = extract_patches(image, frames, self.model.input_size, self.model.extent_for(DEFAULT_DETECTOR))
        return describe_patches(patches, self.model)
