from pathlib import Path

import pytest

from doap import DoapError
from doap.datasets.sets.image_pairs import find_pairs
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import Method, open_methods
from doap.evaluation.harness.result import Result, read_result
from doap.evaluation.image_pairs.own_pairs import ImagePairs
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import score_pair
from support.sets.small_pairs import write_pair


@pytest.fixture
def methods(tmp_path: Path) -> list[Method]:
    return open_methods(["sift", "rootsift"], cache=DescriptorCache(tmp_path / "cache"), detector="dog")


def test_pairs_are_scored_drawn_and_broken_ones_left_out(tmp_path: Path, methods: list[Method]) -> None:
    data = tmp_path / "pairs"
    for number, name in enumerate(("a", "b", "c")):
        write_pair(data / name, number)
    (data / "b" / "b.png").write_bytes(b"not an image")
    steps: list[tuple[str, int, int | None]] = []
    benchmark = ImagePairs(data, keypoints=80, drawings=tmp_path / "drawn")
    result = benchmark.evaluate(methods, lambda *step: steps.append(step))
    assert steps == [("matching", done, 6) for done in range(1, 5)]
    reader = PairReader("dog", 80)
    opened = [reader.open(files) for files in find_pairs(data) if files.sequence != "b"]
    assert result.scores == [score_pair(pair, method) for pair in opened for method in methods]
    assert (result.settings["extent"], result.settings["geometry of labelled points"]) == ("own", "fundamental")
    (error,) = result.settings["left out"]
    assert "b.png" in error
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == ["a-a.png-b.png.png", "c-a.png-b.png.png"]


def test_pairs_with_similar_names_have_drawings_of_their_own(tmp_path: Path, methods: list[Method]) -> None:
    data, drawn = tmp_path / "pairs", tmp_path / "drawn"
    for number, name in enumerate(("room a", "room-a", "room-A", "x")):
        write_pair(data / name, number)
    (data / "x" / "b.png").write_bytes(b"not an image")
    for _ in range(2):  # a second run writes the same files
        ImagePairs(data, keypoints=80, drawings=drawn).evaluate(methods[:1])
        names = sorted(path.name.replace("a.png-b.png", "*") for path in drawn.iterdir())
        assert names == ["room-A-*-2.png", "room-a-*-3.png", "room-a-*.png"]


def test_without_a_readable_pair_there_is_no_result(tmp_path: Path, methods: list[Method]) -> None:
    for number, name in enumerate(("a", "b")):
        write_pair(tmp_path / "pairs" / name, number)
        (tmp_path / "pairs" / name / "b.png").write_bytes(b"not an image")
    with pytest.raises(DoapError, match=r"no pair can be read: .*a/b\.png.*; .*b/b\.png"):
        ImagePairs(tmp_path / "pairs").evaluate(methods)


def test_tables_are_made_of_results_of_version_0_1(tmp_path: Path, methods: list[Method]) -> None:
    """Columns were called "right within 3 px" and "geometry right"."""
    for number, name in enumerate(("a", "b")):
        write_pair(tmp_path / "pairs" / name, number)
    result = ImagePairs(tmp_path / "pairs", keypoints=60).evaluate(methods)
    result.write_json(tmp_path / "new.json")
    text = (tmp_path / "new.json").read_text().replace("correct within", "right within")
    (tmp_path / "old.json").write_text(text.replace("geometry correct", "geometry right"))
    old: Result = read_result(tmp_path / "old.json")
    assert old.scores == result.scores
    assert ImagePairs.tables(old) == ImagePairs.tables(result)
    ImagePairs.draw(old, tmp_path / "old.png")
    assert (tmp_path / "old.png").stat().st_size > 5000
