import json
from pathlib import Path

import numpy as np
import pytest

from doap import PatchSet
from support.command_line import Doap
from support.sets.small_frame_set import FrameSetMaker, add_singles, small_frame_set


def test_pairs_are_made_and_can_be_evaluated(doap: Doap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    small_frame_set().save(tmp_path / "set")
    arguments = ("--singles", 3, "--per-scene", 1, "--copies", 1)
    status, output, _ = doap("data", "pairs", "set", "-o", "pairs", *arguments)
    assert status == 0
    for line in (
        "i_: 2 pairs of static views, 2 scenes",
        "v_: 3 pairs of single photos with copies, 3 scenes",
        "s_: 4 pairs of overlapping photos, 4 scenes",
        "9 pairs of 9 scenes in pairs",
    ):
        assert line in output
    evaluate = ("eval", "pairs", "sift", "--data", "pairs", "--keypoints", 100, "--json", "o.json")
    assert doap(*evaluate)[0] == 0
    result = json.loads((tmp_path / "o.json").read_text())
    assert result["settings"]["left out"] == []
    flat = [row["correct within 3 px"] for row in result["scores"] if not row["sequence"].startswith("s_set-scene")]
    assert len(flat) == 7
    assert np.median(flat) > 60


def test_photos_left_out_of_a_folder_are_counted(doap: Doap, tmp_path: Path) -> None:
    maker = FrameSetMaker()
    add_singles(maker, "set/few", 4)
    maker.frame_set().save(tmp_path / "few")
    status, output, _ = doap("data", "pairs", "few", "-o", "pairs", "--copies", 1)
    assert status == 0
    assert "left out: 3 photos of folders with fewer than 11 photos" in " ".join(output.split())
    assert "1 pair of 1 scene in pairs" in output


def test_a_collection_is_used_whole(doap: Doap, tmp_path: Path) -> None:
    maker = FrameSetMaker()
    add_singles(maker, "set/many", 11)
    maker.frame_set().save(tmp_path / "many")
    status, output, _ = doap("data", "pairs", "many", "-o", "pairs", "--copies", 1)
    assert (status, "left out" in output) == (0, False)


def test_a_patch_set_has_no_photos(doap: Doap, tmp_path: Path) -> None:
    PatchSet([np.zeros((4, 8, 8), np.uint8)], [0, 0, 1, 1]).save(tmp_path / "set")
    status, _, error = doap("data", "pairs", "set", "-o", "pairs")
    assert (status, error.count("\n")) == (1, 1)
    assert "a patch set has none; build it with --frames" in error
