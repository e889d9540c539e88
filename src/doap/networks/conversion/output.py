"""The files that a conversion writes."""

from pathlib import Path

from doap.errors import DoapError
from doap.networks.card import card_path


def check_output(path: Path) -> None:
    """Check that a new model can be written to `path`, before any work is done.

    Raises:
        DoapError: If `path` is not a .safetensors file, or it or its card exists.
    """
    if path.suffix != ".safetensors":
        raise DoapError(f"{path}: models are written as .safetensors; choose such a name")
    for file in (path, card_path(path)):
        if file.exists():
            raise DoapError(f"{file}: exists already; remove it or choose another name")
