"""`doap describe`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import choose_device, counting_bar, say
from doap.errors import DoapError
from doap.features import detect_and_describe
from doap.images.reading import find_photos
from doap.networks.registry import DEFAULT_MODEL, load

EXAMPLE = "Example: doap describe photos/ -o features/ --model doap-256b"


def describe(
    pictures: Annotated[list[Path], typer.Argument(metavar="PICTURES…", help="Pictures, or folders of them.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for one NAME.EXT.npz a picture.")],
    model: Annotated[str, typer.Option(help="A shipped model, or the path of a .safetensors file.")] = DEFAULT_MODEL,
    max_keypoints: Annotated[int, typer.Option(min=1, help="Strongest keypoints to keep of each picture.")] = 2000,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Detect keypoints in pictures and describe them.

    Each picture gives a NumPy archive with frames (N, 2, 3), keypoints (N, 2), descriptors (N, d), size
    (height, width) and model. A picture that cannot be described is named, the others are still done.
    """
    descriptor = load(model, choose_device(device))
    found = find_photos(pictures)
    names = [path.name for path in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DoapError(f"{twice}: two pictures have this name; describe them into different folders")
    failures = []
    with counting_bar() as bar:
        for path in bar.track(found, description="describing"):
            try:
                features = detect_and_describe(path, descriptor, max_keypoints)
            except DoapError as error:
                failures.append(str(error))
                continue
            features.save(output / f"{path.name}.npz")
    say(f"{len(found) - len(failures)} of {len(found)} pictures described in {output}")
    if failures:
        raise DoapError("; ".join(failures))
