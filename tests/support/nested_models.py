"""Nested models for tests: shipped weights whose card says that prefixes were trained."""

import shutil
from pathlib import Path

from doap.networks.card import read_card, write_card
from doap.networks.registry import find_weights


def nested_copy(name: str, folder: Path, prefixes: list[int]) -> str:
    """Copy a shipped model to a folder, with prefixes on its card and another name, and return the path of its weights.

    Its prefixes rank worse than trained ones; everything else about them is the same.
    """
    path = folder / "nested.safetensors"
    shutil.copy(find_weights(name), path)
    card = read_card(find_weights(name))
    write_card(path, card.model_copy(update={"name": "nested", "prefixes": prefixes}))
    return str(path)
