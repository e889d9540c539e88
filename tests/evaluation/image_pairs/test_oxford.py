from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from doap.errors import DoapError
from doap.evaluation.harness.bars import colours_of
from doap.evaluation.harness.result import Result, Score
from doap.evaluation.image_pairs.oxford import Oxford, find_oxford
from doap.evaluation.image_pairs.oxford_figure import draw_oxford
from doap.evaluation.image_pairs.sequences import PAPER_SEQUENCES, by_sequence, mean_of_six
from doap.evaluation.image_pairs.tables import compare_all
from doap.evaluation.metrics.significance import summarise
from support.sets.small_pairs import homography, write_sequence


def test_the_first_image_is_paired_with_each_other(tmp_path: Path) -> None:
    write_sequence(tmp_path / "wall", 1)
    write_sequence(tmp_path / "graf", 0)
    pairs = find_oxford(tmp_path)
    assert [(f.sequence, f.name) for f in pairs] == [
        (sequence, f"1-{number}") for sequence in ("graf", "wall") for number in range(2, 7)
    ]
    for number, files in enumerate(pairs[5:], 2):
        assert (files.first.name, files.second.name) == ("img1.png", f"img{number}.png")
        assert isinstance(files.ground_truth, np.ndarray)
        np.testing.assert_allclose(files.ground_truth, homography(number, 1))


def test_two_sequences_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_sequence(tmp_path / folder / "graf", 0)
    with pytest.raises(DoapError, match="two sequences are called graf"):
        find_oxford(tmp_path)


def scores(names: tuple[str, ...], sequences: tuple[str, ...]) -> list[Score]:
    random = np.random.default_rng(0)
    return [
        {"descriptor": name, "sequence": sequence, "pair": f"1-{k}", "ap": float(random.uniform(0, 100))}
        for sequence in sequences
        for k in range(2, 7)
        for name in names
    ]


def test_a_sequence_is_the_mean_of_its_pairs_and_all_are_the_mean_of_sequences() -> None:
    rows = scores(("a", "b"), ("bark", *PAPER_SEQUENCES))
    table = by_sequence(rows)
    for name in ("a", "b"):
        values = np.array([row["ap"] for row in rows if row["descriptor"] == name], np.float64)
        expected = values.reshape(7, 5).mean(1)
        np.testing.assert_allclose(list(table[name].values()), expected)
        assert mean_of_six(table[name]) == pytest.approx(expected[1:].mean())
        (summary,) = (row for row in summarise(rows, ["ap"]) if row["descriptor"] == name)
        assert summary["ap"] == pytest.approx(expected.mean())
    assert mean_of_six({"graf": 50.0}) is None


def test_the_figure_has_one_bar_per_descriptor_and_sequence(tmp_path: Path) -> None:
    names = tuple(f"model-{k}" for k in range(13))
    settings = {"detector": "dog", "extent": "3", "keypoints": 10}
    rows = scores(names, ("bark", "graf"))
    result = Result(benchmark="oxford", settings=settings, methods=[{"name": n} for n in names], scores=rows)
    draw_oxford(result, tmp_path / "oxford.png")
    with Image.open(tmp_path / "oxford.png") as drawn:
        pixels = np.asarray(drawn.convert("RGB"), np.int32) @ np.array([1 << 16, 1 << 8, 1])
    colours = colours_of(names)
    assert len(set(colours.values())) == 13
    assert {int(colour[1:], 16) for colour in colours.values()} <= set(np.unique(pixels).tolist())


def test_no_p_is_shown_as_0() -> None:
    rows = scores(("a", "b"), ("bark", "graf"))
    for p, shown in ((1.5e-5, "< 0.001"), (0.001, "0.001"), (0.03125, "0.031")):
        comparisons = [row | {"p": p} for row in compare_all(rows)]
        result = Result(benchmark="oxford", settings={}, methods=[], scores=rows, comparisons=comparisons)
        assert Oxford.tables(result)[-1].rows[0].cells[2] == shown


def test_tables_name_the_protocol_and_have_its_measures() -> None:
    rows = scores(("a", "b"), ("bark", "graf"))
    older = Result(benchmark="oxford", settings={}, methods=[], scores=rows, comparisons=compare_all(rows))
    sequences, means, _ = Oxford.tables(older)
    assert sequences.title.endswith("protocol doap")
    assert means.columns == ("descriptor", "mAP %")
    rows = [row | {"area under curve": 10.0, "matching score": 5.0} for row in rows]
    settings = {"protocol": "vlbenchmarks"}
    result = Result(benchmark="oxford", settings=settings, methods=[], scores=rows, comparisons=compare_all(rows))
    sequences, means, _ = Oxford.tables(result)
    assert sequences.title.endswith("protocol vlbenchmarks")
    assert means.columns == ("descriptor", "mAP %", "area under curve %", "matching score %")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "oxford"}, "protocol oxford: unknown; choose one of doap, vlbenchmarks"),
        ({"overlap_error": 0.4}, "overlap error: only the protocol vlbenchmarks"),
        ({"protocol": "vlbenchmarks", "overlap_error": 1.0}, "overlap error: must be between 0 and 1, not 1"),
        ({"protocol": "vlbenchmarks", "overlap_error": 0.0}, "overlap error: must be between 0 and 1, not 0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DoapError, match=message):
        Oxford(Path("oxford"), **options)
