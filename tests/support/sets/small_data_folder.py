"""A folder of small data sets in the official formats, as `doap data download` would fill it."""

import json
from pathlib import Path

from support.sets.official_formats import write_half
from support.sets.small_official_sets import make_hpatches
from support.sets.small_pairs import write_sequence
from support.sets.small_phototour import learnable_phototour

SCENES = ("liberty", "notredame", "yosemite")
TRAIN = ("i_one", "v_london", "v_two")
TEST = ("i_three", "v_four")


def make_data_folder(folder: Path, points: int = 50, patches: int = 12) -> Path:
    """Write every data set of the paper: three scenes, five sequences with a split, both halves, Oxford."""
    for number, scene in enumerate(SCENES):
        learnable_phototour(folder / f"phototour-{scene}", points=points, pairs=60, seed=number)
    make_hpatches(folder / "hpatches", (*TRAIN, *TEST), patches)
    (folder / "hpatches-tasks").mkdir()
    split = {"a": {"name": "a", "train": TRAIN, "test": TEST}}
    (folder / "hpatches-tasks" / "splits.json").write_text(json.dumps(split))
    for number, half in enumerate(("train", "test")):
        write_half(folder / "romepatches", half, seed=number)
    for number, name in enumerate(("boat", "graf", "wall")):
        write_sequence(folder / "oxford" / name, seed=number)
    return folder
