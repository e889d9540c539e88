"""The files that a conversion writes."""

from pathlib import Path

from doap.errors import DoapError
from doap.networks import check_name
from doap.networks.card import card_path


def check_output(path: Path, name: str | None) -> None:
    """Check that a new model can be written to `path`, before any work is done.

    Args:
        path: File to write.
        name: Name of the model; None is that of the file.

    Raises:
        DoapError: If `path` is not a .safetensors file, it or its card exists, or the name is that of a prefix.
    """
    if path.suffix != ".safetensors":
        raise DoapError(f"{path}: models are written as .safetensors; choose such a name")
    for file in (path, card_path(path)):
        if file.exists():
            raise DoapError(f"{file}: exists already; remove it or choose another name")
    check_name(name or path.stem)
