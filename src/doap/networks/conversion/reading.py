"""Reading weights from elsewhere without executing code: PyTorch checkpoints, safetensors and MATLAB files."""

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from doap.errors import DoapError

MAX_BYTES = 256 << 20  # fifty times the weights of the largest known network


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a PyTorch checkpoint or a .safetensors file.

    A checkpoint is a state dict, or a dictionary that holds one as "state_dict". It is read with
    `torch.load(weights_only=True)`, which executes no code of the file.

    Raises:
        DoapError: If the file cannot be read, needs code, is too large, or holds no state dict.
    """
    check_size(path)
    if path.suffix == ".safetensors":
        try:
            return safetensors.torch.load_file(path)
        except SafetensorError as error:
            raise DoapError(f"{path}: not a safetensors file ({error})") from error
    return _find_state_dict(path, _load_checkpoint(path))


def _load_checkpoint(path: Path) -> object:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about storage types and pickle protocols of old checkpoints
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DoapError(
            f"{path}: not a checkpoint of tensors only; nothing else is read, since a pickle can execute code"
        ) from error
    except Exception as error:  # damaged files cause all kinds of exceptions in torch's reader and in its unpickler
        raise DoapError(f"{path}: not a readable checkpoint; is it truncated? Download it again") from error


def _find_state_dict(path: Path, content: object) -> dict[str, Tensor]:
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not content:
        raise DoapError(f"{path}: holds no state dict; give a checkpoint of tensors by name")
    for name, value in content.items():
        if not isinstance(name, str) or not _is_dense(value):
            raise DoapError(f"{path}: its entry {str(name)[:40]!r} is not a dense tensor; give a checkpoint of tensors")
    tensors = {name: value.detach() for name, value in content.items()}
    if sum(value.numel() for value in tensors.values()) > MAX_BYTES // 4:  # a small file can hold one number many times
        raise DoapError(f"{path}: its tensors are larger than those of known networks")
    return tensors


def _is_dense(value: object) -> bool:
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not (value.is_complex() or value.is_quantized)
    )


def read_matlab(path: Path, names: list[str]) -> dict[str, Any]:
    """Read variables of a MATLAB file up to version 7.2, structures as objects with attributes.

    Raises:
        DoapError: If the file cannot be read or lacks a variable.
    """
    from scipy.io import loadmat

    check_size(path)
    try:
        variables: dict[str, Any] = loadmat(
            str(path), variable_names=names, struct_as_record=False, squeeze_me=True, appendmat=False
        )
    except NotImplementedError as error:
        raise DoapError(f"{path}: a MATLAB file of version 7.3; save it with save -v7") from error
    except Exception as error:  # damaged files cause all kinds of exceptions in SciPy
        raise DoapError(f"{path}: not a readable MATLAB file; is it truncated? Download it again") from error
    missing = [name for name in names if name not in variables]
    if missing:
        raise DoapError(f"{path}: has no variable {missing[0]}; expected the weights published by L2-Net's authors")
    return variables


def check_size(path: Path) -> None:
    """Raise DoapError unless a path is a file that is small enough, also when it is unpacked."""
    if not path.is_file():
        raise DoapError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}; give the file of the weights")
    size = path.stat().st_size
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = max(size, sum(entry.file_size for entry in archive.infolist()))
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise DoapError(f"{path}: a damaged archive; download it again") from error
    if size > MAX_BYTES:
        raise DoapError(f"{path}: {size / 1e6:,.0f} MB of content; weights of known networks have less than 30 MB")
