"""`doap eval pairs`, run on small pairs in the layouts that users have."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from support.command_line import Doap
from support.figures import is_drawn_from
from support.sets.small_pairs import write_pair, write_points

MODELS = ("doap-demo-128", "sift")


@pytest.fixture
def own_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two with homographies, one with labelled points, one broken."""
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "mine"
    rows = ["first,second,truth"]
    for seed in range(2):
        write_pair(folder / f"p{seed}", seed)
        rows.append(f"p{seed}/a.png,p{seed}/b.png,p{seed}/H.txt")
    write_points(folder / "labels.csv", write_pair(folder / "p2", 2))
    rows += ["p2/a.png,p2/b.png,labels.csv", "p0/a.png,missing.png,p0/H.txt"]
    (folder / "pairs.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_pairs_are_scored_drawn_and_the_broken_one_is_named(doap: Doap, own_pairs: Path, tmp_path: Path) -> None:
    outputs = ("--json", "o.json", "--csv", "o.csv", "--figure", "o.png", "--drawings", "drawn")
    status, shown, _ = doap("eval", "pairs", *MODELS, "--data", own_pairs, "--keypoints", 200, *outputs)
    assert status == 0
    result = json.loads((tmp_path / "o.json").read_text())
    assert len(result["scores"]) == 3 * 2
    for row in result["scores"]:
        labelled = row["pair"].startswith("3:")
        assert (row["ap"] is None) == labelled
        if not labelled:
            assert row["geometry correct"] == 100
            assert row["correct within 3 px"] > 30
            assert 20 < row["inliers"] <= row["matches"]
    assert "missing.png: no such file" in result["settings"]["left out"][0]
    assert "left out:" in shown
    assert "3 pairs resampled" in shown
    drawn = sorted(path.name for path in (tmp_path / "drawn").iterdir())
    assert drawn == [f"{k}-a.png-b.png.png" for k in (1, 2, 3)]
    with Image.open(tmp_path / "drawn" / drawn[0]) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert (pixels == (0x1A, 0x98, 0x50)).all(2).any()  # correct matches are green
    assert is_drawn_from(tmp_path / "o.png", tmp_path / "o.json")


def test_labelled_points_of_a_plane_have_average_precision(doap: Doap, own_pairs: Path, tmp_path: Path) -> None:
    (own_pairs / "pairs.csv").write_text("first,second,truth\np2/a.png,p2/b.png,labels.csv\n")
    arguments = ("sift", "--keypoints", 200, "--geometry", "homography", "--json", "o.json")
    assert doap("eval", "pairs", "--data", own_pairs, *arguments)[0] == 0
    (row,) = json.loads((tmp_path / "o.json").read_text())["scores"]
    assert row["ap"] > 40
    assert row["geometry correct"] == 100


def test_nothing_but_errors_is_an_error(doap: Doap, own_pairs: Path) -> None:
    (own_pairs / "pairs.csv").write_text("first,second,truth\nx.png,y.png,H.txt\n")
    status, _, error = doap("eval", "pairs", "sift", "--data", own_pairs)
    assert status == 1
    assert "x.png: no such file" in error
    status, _, error = doap("eval", "pairs", "sift", "--data", own_pairs / "p7")
    assert (status, "p7: no such folder" in error) == (1, True)
