from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from doap import DoapError
from doap.datasets.sets.image_pairs import PairFiles, find_pairs, read_points
from support.sets.small_pairs import homography, write_pair, write_points, write_sequence


def test_sequences_and_folders_of_pairs_are_found_together(tmp_path: Path) -> None:
    write_sequence(tmp_path / "b" / "wall", 0)
    write_pair(tmp_path / "a", 1)
    write_pair(tmp_path / "c", 2, "points.csv")
    pairs = find_pairs(tmp_path)
    assert [(f.sequence, f.name) for f in pairs] == [
        ("a", "a.png - b.png"),
        *(("b/wall", f"1-{number}") for number in range(2, 7)),
        ("c", "a.png - b.png"),
    ]
    assert (pairs[0].first, pairs[0].second) == (tmp_path / "a" / "a.png", tmp_path / "a" / "b.png")
    assert isinstance(pairs[2].ground_truth, np.ndarray)
    np.testing.assert_allclose(pairs[2].ground_truth, homography(3, 0))


def test_hidden_files_are_no_images_of_a_pair(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", 1)
    (tmp_path / "a" / "._a.png").write_bytes(b"\0\5\x16\7")  # of macOS
    assert [(pair.first.name, pair.second.name) for pair in find_pairs(tmp_path)] == [("a.png", "b.png")]


def test_a_table_names_pairs_and_scenes(tmp_path: Path) -> None:
    write_pair(tmp_path / "house", 0)
    write_points(tmp_path / "labels.csv", homography(2, 0))
    table = tmp_path / "pairs.csv"
    table.write_text("\ufefffirst,second,truth,scene\nhouse/a.png,house/b.png,house/H.txt,h\n\n"
                     "house/b.png,house/a.png, labels.csv ,h\n")  # fmt: skip
    forth, back = find_pairs(tmp_path)
    assert forth == PairFiles("h", "1: a.png - b.png", *(tmp_path / "house" / n for n in ("a.png", "b.png", "H.txt")))
    assert (back.sequence, back.name, back.ground_truth) == ("h", "2: b.png - a.png", tmp_path / "labels.csv")
    table.write_text("first,second,truth\nhouse/a.png,house/b.png,house/H.txt\nhouse/a.png,house/b.png,labels.csv\n")
    assert [f.sequence for f in find_pairs(tmp_path)] == ["1: a.png - b.png", "2: a.png - b.png"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must have the heading"),
        ("first,second,truth\n", "and one row per pair"),
        ("first,second\na.png,b.png\n", "must have the heading"),
        ("first,second,truth,weight\na.png,b.png,H.txt,2\n", "must have the heading"),
        ("first,second,truth,first\na.png,b.png,H.txt,c.png\n", "must have the heading"),
        ("first,second,truth\na.png,b.png,H.txt\na.png,b.png\n", "pair 2 does not have 3 values"),
        ("first,second,truth\na.png,,H.txt\n", "pair 1 does not have 3 values"),
        ("first,second,truth\n\x00\xff".encode("latin-1"), "not a CSV table"),
        ("first,second,truth\na.png,b.png,H\0.txt\n", "pair 1 has a control character"),
        (b"x" * (1 << 25), "too large"),
    ],
)
def test_a_wrong_table_is_named_in_one_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    (tmp_path / "pairs.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DoapError, match=rf"pairs\.csv: .*{message}") as caught:
        find_pairs(tmp_path)
    assert "\n" not in str(caught.value)


def test_folders_without_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="nowhere: no such folder"):
        find_pairs(tmp_path / "nowhere")
    with pytest.raises(DoapError, match=r"no image pairs here: no pairs\.csv, no image sequence, no folder of two"):
        find_pairs(tmp_path)
    write_pair(tmp_path / "many", 0)
    Image.new("L", (9, 9)).save(tmp_path / "many" / "c.png")
    with pytest.raises(DoapError, match=r"many: a pair is two images and one file .*, not 3 and 1; .*pairs\.csv"):
        find_pairs(tmp_path)


def test_points_are_read_with_and_without_a_heading(tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_text("1,2,3,4\n5,6.5,7,-8\n")
    np.testing.assert_array_equal(read_points(file), [[1, 2, 3, 4], [5, 6.5, 7, -8]])
    file.write_text("x1, y1, x2, y2\n1, 2, 3, 4\n")
    np.testing.assert_array_equal(read_points(file), [[1, 2, 3, 4]])


@pytest.mark.parametrize(
    "content", ["", "x,y\n", "1,2,3\n", "1,2,3,4\n1,2,3\n", "1,2,3,nan\n", "1O,2,3,4\n1,2,3,4\n", "a,b,c,d\n1,2,x,4\n"]
)
def test_wrong_points_are_named_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "points.csv").write_text(content)
    with pytest.raises(DoapError, match=r"points\.csv: not a table of numbers x1,y1,x2,y2"):
        read_points(tmp_path / "points.csv")
