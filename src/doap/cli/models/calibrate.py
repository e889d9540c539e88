"""`doap calibrate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.choices import DEFAULT_DETECTOR
from doap.cli.console import counting_bar, say
from doap.errors import DoapError, inflect

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from doap.networks.descriptor import Descriptor

EXAMPLE = "Example: doap calibrate runs/real/weights.safetensors photos/"


def calibrate(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Path of a .safetensors file with its card, or of a model folder.")
    ],
    photos: Annotated[list[Path], typer.Argument(metavar="PHOTOS", help="Photos, or folders of photos.")],
    keypoints: Annotated[int, typer.Option(min=1, help="Number of strongest keypoints per photo.")] = 100,
) -> None:
    """Prepare a model for int8: measure the range of the inputs of its layers and write it on its card.

    A few dozen photos of the kind that will be described are enough; do not use photos that the model is tested on.
    Afterwards the model can be loaded with --precision int8. To calibrate a shipped model, copy it first.
    """
    from doap.images.reading import find_photos
    from doap.networks import int8, split_length
    from doap.networks.card import write_card
    from doap.networks.registry import find_card, find_weights, list_models, load

    if split_length(model)[1] is not None:
        raise DoapError(f"{model}: calibrate the whole model; its ranges hold for prefixes too")
    if model in list_models():
        raise DoapError(
            f"{model}: a shipped model, whose card is not changed; calibrate a copy of it, written in Python by "
            f"doap.bridges.hub.save_pretrained('{model}', 'FOLDER')"
        )
    descriptor, card = load(model, fast=False), find_card(model)
    if card is None:
        raise DoapError(f"{model}: has no card to write the ranges on")
    int8.check_has_int8(descriptor)
    paths = find_photos(photos)
    patches = _extract_patches(paths, descriptor, keypoints)
    ranges = [round(largest, 3) for largest in int8.calibrate(descriptor, patches)]
    write_card(find_weights(model), card.model_copy(update={"activation_ranges": ranges}))
    listed = ", ".join(f"{largest:g}" for largest in ranges)
    say(
        f"{descriptor.name}: ranges {listed} from {len(patches)} patches of {len(paths)} {inflect(len(paths), 'photo')}"
    )


def _extract_patches(paths: list[Path], model: "Descriptor", keypoints: int) -> "NDArray[np.uint8]":
    """Return the patches of the strongest keypoints of photos, at the best extent of the model."""
    import numpy as np

    from doap.images.detectors import find_frames
    from doap.images.extraction import extract_patches
    from doap.images.reading import read_grey

    patches = []
    with counting_bar() as bar:
        for path in bar.track(paths, description="extracting patches"):
            image = read_grey(path)
            frames = find_frames(DEFAULT_DETECTOR, image, keypoints).frames
            patches.append(extract_patches(image, frames, model.input_size, model.extent_for(DEFAULT_DETECTOR)))
    return np.concatenate(patches)
