from pathlib import Path

import numpy as np

from doap import PatchSet
from doap.datasets.sets.frame_set import FrameSet
from support.command_line import Doap
from support.sets.small_frame_set import small_frame_set


def test_photos_of_chosen_licences_are_kept(doap: Doap, tmp_path: Path) -> None:
    data = small_frame_set()
    data.save(tmp_path / "set")
    rows = ["archive,file,source,licence"]
    licences = {"many": "CC0 1.0 (repo LICENSE)", "plane0": "repo BSD", "few": "GPL-2+ / CC BY-SA 4.0"}
    for archive, file in (name.split("/", 1) for name in data.photo_names):
        rows.append(f"{archive},{file},github:a/b,{licences.get(file.split('/')[0], 'no licence stated')}")
    (tmp_path / "photos.csv").write_text("\n".join(rows))
    arguments = ("data", "select", "set", "--photos-csv", "photos.csv", "-o", "open")
    status, output, _ = doap(*arguments, "--licence", "CC*", "--licence", "*BSD*")
    assert status == 0
    kept = FrameSet.open(tmp_path / "open")
    assert {name.split("/")[1] for name in kept.photo_names} == {"many", "plane0"}
    assert f"open: {kept}" in output
    table = [[cell.strip() for cell in row.split("│")[1:4]] for row in output.splitlines() if row.count("│") == 4]
    assert ["CC0 1.0 (repo LICENSE)", "14", "yes"] in table
    assert ["GPL-2+ / CC BY-SA 4.0", "3", "no"] in table
    status, _, error = doap(*arguments[:-1], "other", "--licence", "MIT")
    assert (status, error.count("\n")) == (1, 1)
    assert not (tmp_path / "other").exists()


def test_a_patch_set_is_refused(doap: Doap, tmp_path: Path) -> None:
    PatchSet([np.zeros((4, 8, 8), np.uint8)], [0, 0, 1, 1]).save(tmp_path / "set")
    status, _, error = doap("data", "select", "set", "--photos-csv", "photos.csv", "--licence", "CC*", "-o", "open")
    assert (status, error) == (1, "doap: set: not a frame set; build one with doap data build --frames\n")
