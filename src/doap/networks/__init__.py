"""Networks and baselines that map patches to descriptors."""

import os
import re

from doap.errors import DoapError, check_whole_number

# Not in the registry, so that the command line can print it without importing torch.
DEFAULT_MODEL = "doap-128"


def with_length(name_or_path: str, dimensions: int | None) -> str:
    """Return the name of a prefix of a model, `NAME@64`; without a length, the name itself.

    Raises:
        DoapError: If the length is no positive whole number, the name has another length already, or there is a file
            or folder of the new name.
    """
    if dimensions is None or split_length(name_or_path)[1] == dimensions:
        return name_or_path
    check_whole_number("dimensions", dimensions)
    if dimensions < 1:
        raise DoapError(f"{name_or_path}: dimensions must be at least 1, not {dimensions}")
    name = f"{name_or_path}@{int(dimensions)}"
    if split_length(name)[1] is None and split_name(name)[1] is not None:
        raise DoapError(f"{name}: is a file or folder, not the prefix of {name_or_path}; rename it")
    return name


def split_length(name_or_path: str) -> tuple[str, int | None]:
    """Split `NAME@64` into the name or path and the length; a path that exists is not split.

    Raises:
        DoapError: If the name has two different lengths.

    Example:
        >>> split_length("doap-128@64"), split_length("doap-128")
        (('doap-128', 64), ('doap-128', None))
    """
    name, length = split_name(name_or_path)
    if length is None or os.path.exists(name_or_path):  # noqa: PTH110 (not an error if the name is too long)
        return name_or_path, None
    base, other = split_length(name)
    if other not in (None, length):
        raise DoapError(f"{name}: names {other} dimensions or bits already, not {length}")
    return base, length


def split_name(name: str) -> tuple[str, int | None]:
    """Split the name of a model, not a path, into that of the whole and the length of a prefix.

    Example:
        >>> split_name("mine@64"), split_name("mine")
        (('mine', 64), ('mine', None))
    """
    match = re.fullmatch(r"(.+)@([0-9]{1,9})", name)
    return (match[1], int(match[2])) if match else (name, None)


def check_name(name: str) -> None:
    """Check the name of a new model.

    Raises:
        DoapError: If it is that of a prefix of another model.
    """
    base, length = split_name(name)
    if length is not None:
        raise DoapError(f"{name}: names a prefix of the model {base}; choose another name")
