"""Files of pairs."""

from itertools import permutations
from pathlib import Path

import pytest

from doap.errors import DoapError
from doap.folders.pairs import all_pairs, in_blocks, read_pairs

NAMES = ["a.jpg", "b c/d e.jpg", 'f".jpg', "ü.jpg"]


def test_pairs_are_two_names_per_line(tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text('# comment\na.jpg ü.jpg\n\n"b c/d e.jpg"\tf".jpg\nü.jpg "a.jpg"\n a.jpg   f".jpg \n', "utf-8")
    expected = [("a.jpg", "ü.jpg"), ("b c/d e.jpg", 'f".jpg'), ("a.jpg", 'f".jpg')]
    assert read_pairs(path, NAMES) == read_pairs(str(path), NAMES) == expected
    with pytest.raises(DoapError, match="the file of pairs must be a path or a name, not NoneType"):
        read_pairs(None, NAMES)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.jpg ü.jpg\na.jpg\n", r"line 2: 1 name instead of 2"),
        ("a.jpg b c/d e.jpg\n", r"line 1: 4 names .*quotes"),
        ("a.jpg x.jpg\n", r"line 1: no features of x.jpg"),
        ("a.jpg a.jpg\n", r"paired with itself"),
        ("# nothing\n", r"no pair in it"),
        ("a.jpg \xff.jpg", r"not a text file in UTF-8"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text(text, encoding="latin-1" if "\xff" in text else "utf-8")
    with pytest.raises(DoapError, match=message) as error:
        read_pairs(path, NAMES)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="cannot be read"):
        read_pairs(tmp_path / "pairs.txt", NAMES)


def test_all_pairs_are_listed_once() -> None:
    names = ["c", "a", "b", "d"]
    assert set(all_pairs(names)) == {(a, b) for a, b in permutations(names, 2) if a < b}
    assert len(all_pairs(names)) == 6
    assert all_pairs(["a"]) == []


def test_blocks_keep_the_pairs_and_need_few_images_at_a_time() -> None:
    names = [f"{number:03}" for number in range(40)]
    ordered = in_blocks(all_pairs(names)[::-1], 8)
    assert sorted(ordered) == all_pairs(names)
    reads, cache = 0, dict[str, None]()
    for pair in ordered:
        for name in pair:
            reads += cache.pop(name, 0) == 0
            cache[name] = None
        while len(cache) > 16:
            cache.pop(next(iter(cache)))
    assert reads <= 15 * 16  # 15 blocks of 8 x 8, each with 16 images
