"""Models as programs of `torch.export` and TorchScript, which need torch but not doap."""

import io
import warnings
import zipfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.errors import DoapError
from doap.networks.descriptor import Descriptor, is_padded, pad_patches

MIN_TORCH = (2, 6)
EXTRA_FILE = "doap.json"
MAX_DIMENSION = 1 << 20  # of a batch and of a side of patches: torch.export wants a limit


def check_torch() -> None:
    """Raise DoapError if `torch.export` of the installed torch is too old."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < MIN_TORCH:
        wanted = ".".join(map(str, MIN_TORCH))
        raise DoapError(f"torch {torch.__version__} is too old to export; run: pip install 'torch>={wanted}'")


class _PatchModel(nn.Module):
    """A model that reads (N, H, W) uint8 patches of any size.

    It always resizes: a program cannot depend on whether the patches have the size already. If they have, their values
    do not change. For a network of three extents it also always pads, and selects one of both results.
    """

    def __init__(self, model: Descriptor) -> None:
        super().__init__()
        self.model = model

    def forward(self, patches: Tensor) -> Tensor:
        size = self.model.input_size
        values = _resize(patches, size)
        if self.model.network.surroundings > 1:
            side = torch.full((), patches.shape[1])
            values = torch.where(is_padded(side, size), pad_patches(_resize(patches, size // 2)), values)
        descriptors: Tensor = self.model(values)
        return descriptors


def export_program(model: Descriptor, metadata: str) -> bytes:
    """Export a model with `torch.export`, with dynamic batch and size of patches.

    Args:
        model: Model from `prepare`.
        metadata: Text stored in the file as `doap.json`.

    Returns:
        Content of a .pt2 file.

    Raises:
        DoapError: If torch is too old.
    """
    check_torch()
    count, height, width = (torch.export.Dim(name, min=1, max=MAX_DIMENSION) for name in ("N", "H", "W"))
    with torch.no_grad():
        program = torch.export.export(
            _PatchModel(model).eval(),
            (_example(model),),
            dynamic_shapes=({0: count, 1: height, 2: width},),
            strict=False,
        )
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this installation
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={EXTRA_FILE: metadata})
    return content.getvalue()


def export_script(model: Descriptor, metadata: str) -> bytes:
    """Export a model as TorchScript, with dynamic batch and size of patches; arguments as `export_program`.

    Returns:
        Content of a .pt file.
    """
    content = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated; checks of shapes are constant, as they should be
        traced = torch.jit.trace(  # type: ignore[no-untyped-call]
            _PatchModel(model).eval(), _example(model), check_trace=False
        )
        torch.jit.save(traced, content, _extra_files={EXTRA_FILE: metadata})
    return content.getvalue()


def is_exported_by_torch(path: Path) -> bool:
    """Return whether a file is a .pt2 or .pt file that was written by doap."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(Path(name).name.startswith(EXTRA_FILE) for name in archive.namelist())
    except zipfile.BadZipFile:
        return False


def _resize(patches: Tensor, size: int) -> Tensor:
    """Return (N, 1, size, size) float32 patches of (N, H, W) uint8 patches."""
    return F.interpolate(patches[:, None].float(), (size, size), mode="bilinear", antialias=True)


def _example(model: Descriptor) -> Tensor:
    """Return patches to trace with, not of the input size, so that no size is taken for a constant."""
    side = model.input_size
    return torch.randint(0, 256, (3, side + 5, side + 7), dtype=torch.uint8)
