"""Writing figures: in formats that matplotlib knows, whole or not at all."""

from pathlib import Path

from matplotlib.figure import Figure

from doap.errors import DoapError
from doap.files import atomic_file


def check_format(path: Path) -> None:
    """Refuse a file name that a figure cannot have, before the work for it is done."""
    if path.suffix.lower() not in (".png", ".jpg", ".jpeg", ".pdf", ".svg"):
        raise DoapError(f"{path}: figures are written as .png, .jpg, .pdf or .svg")


def write_figure(figure: Figure, path: Path, dpi: int = 110) -> None:
    """Write a figure, atomically."""
    check_format(path)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=dpi)
