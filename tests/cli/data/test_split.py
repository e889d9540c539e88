from pathlib import Path

import numpy as np
import pytest

from doap import PatchSet
from doap.datasets.official.hpatches import STRIPS, write_hpatches_folder
from doap.datasets.sets.frame_set import FrameSet
from support.command_line import Doap
from support.sets.small_frame_set import small_frame_set


@pytest.fixture
def frame_set(tmp_path: Path) -> Path:
    small_frame_set().save(tmp_path / "set")
    return tmp_path / "set"


def test_a_frame_set_is_split_and_the_parts_are_listed(doap: Doap, frame_set: Path, tmp_path: Path) -> None:
    status, output, _ = doap("data", "split", frame_set, "--val-fraction", 0.25, "-o", "split", "--seed", 3)
    assert status == 0
    train, val = (FrameSet.open(tmp_path / "split" / name) for name in ("train", "val"))
    assert len(train) + len(val) == len(small_frame_set())
    assert f"split/val: {val}" in output
    assert "split/split.csv" in output
    table = {row.split("│")[1].strip(): row.split("│")[2:4] for row in output.splitlines() if row.count("│") == 4}
    counts = {source: tuple(map(int, row)) for source, row in table.items()}
    assert counts == {"views": (11, 4), "static": (1, 1), "tracks": (3, 1)}
    status, _, error = doap("data", "split", frame_set, "-o", "split")
    assert (status, "split: exists already" in error) == (1, True)


def test_an_official_folder_is_split_by_sequence(doap: Doap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    patches = np.random.default_rng(0).integers(0, 256, (5, 65, 65), dtype=np.uint8)
    for name in ("i_a", "i_b", "v_c", "v_d"):
        write_hpatches_folder(tmp_path / "hpatches" / name, dict.fromkeys(STRIPS, patches))
    assert doap("data", "split", "hpatches", "-o", "split", "--val-fraction", 0.5)[0] == 0
    names = [PatchSet.open(tmp_path / "split" / part).sequence_names for part in ("train", "val")]
    assert sorted([*names[0], *names[1]]) == ["i_a", "i_b", "v_c", "v_d"]
    assert len(names[0]) == 2


def test_an_error_is_one_line(doap: Doap, tmp_path: Path) -> None:
    PatchSet([np.zeros((4, 8, 8), np.uint8)], [0, 0, 1, 1]).save(tmp_path / "one")
    status, _, error = doap("data", "split", "one", "-o", "split")
    assert (status, error.count("\n")) == (1, 1)
    assert "keeps scenes whole" in error
    assert not (tmp_path / "split").exists()
