"""`doap describe`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import choose_device, counting_bar, say
from doap.errors import DoapError
from doap.networks import DEFAULT_MODEL

EXAMPLE = "Example: doap describe photos/ -o features/ --model doap-256b"


def describe(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES", help="Images, or folders of images.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for one NAME.EXT.npz per image.")],
    model: Annotated[str, typer.Option(help="Shipped model, or path of a .safetensors file.")] = DEFAULT_MODEL,
    max_keypoints: Annotated[int, typer.Option(min=1, help="Number of strongest keypoints per image.")] = 2000,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Detect keypoints in images and describe them.

    Each image gives a NumPy archive with frames (N, 2, 3), keypoints (N, 2), descriptors (N, D), size (height, width)
    and model. An image that cannot be described is reported, and the others are still described.
    """
    from doap.features import detect_and_describe
    from doap.images.reading import find_photos
    from doap.networks.registry import load

    descriptor = load(model, choose_device(device))
    paths = find_photos(images)
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise DoapError(f"{duplicate}: two images have this name; describe them into different folders")
    failures = []
    with counting_bar() as bar:
        for path in bar.track(paths, description="describing"):
            try:
                features = detect_and_describe(path, descriptor, max_keypoints)
            except DoapError as error:
                failures.append(str(error))
                continue
            features.save(output / f"{path.name}.npz")
    say(f"{len(paths) - len(failures)} of {len(paths)} images described in {output}")
    if failures:
        raise DoapError("; ".join(failures))
