"""Rows of newer results replace those of the same descriptors, and nothing else."""

from pathlib import Path

import pytest

import merge_results
from doap.errors import DoapError
from doap.evaluation.harness.result import Result, Score


def oxford(extent: str, **aps: float) -> Result:
    """Return a result of two sequences with the AP of each descriptor, 1 less on the second sequence."""
    rows: list[Score] = [
        {"descriptor": name, "sequence": sequence, "pair": "1-2", "AP": ap - number}
        for name, ap in aps.items()
        for number, sequence in enumerate(("graf", "wall"))
    ]
    methods = [{"name": name} for name in aps]
    curves = [{"descriptor": name, "points": [ap]} for name, ap in aps.items()]
    settings = {"data": f"of {len(aps)}", "extent": extent}
    return Result(benchmark="oxford", settings=settings, methods=methods, scores=rows, curves=curves)


def test_rows_of_a_descriptor_are_replaced_and_new_ones_added() -> None:
    merged = merge_results.merge(oxford("12", sift=60.0, ours=70.0), oxford("12", ours=74.0, large=75.0, small=65.0))
    assert [method["name"] for method in merged.methods] == ["sift", "ours", "large", "small"]
    actual = {(row["descriptor"], row["sequence"]): row["AP"] for row in merged.scores}
    assert actual[("sift", "wall")] == 59
    assert actual[("ours", "graf")] == 74
    assert actual[("large", "wall")] == 74
    assert len(merged.scores) == 8
    assert [curve["points"] for curve in merged.curves] == [[60.0], [74.0], [75.0], [65.0]]
    assert merged.settings["data"] == "of 2"


def test_results_of_other_settings_are_refused() -> None:
    with pytest.raises(DoapError, match="setting extent: 12 and 17 differ"):
        merge_results.merge(oxford("12", sift=60.0), oxford("17", ours=74.0))
    other = oxford("12", ours=74.0).model_copy(update={"benchmark": "hpatches"})
    with pytest.raises(DoapError, match="oxford and hpatches"):
        merge_results.merge(oxford("12", sift=60.0), other)


def test_results_of_other_image_pairs_are_refused(tmp_path: Path) -> None:
    older = oxford("12", sift=60.0)
    newer = oxford("12", ours=74.0)
    for number, scores in enumerate((newer.scores[:1], [{**row, "sequence": "bark"} for row in newer.scores])):
        older.write_json(tmp_path / "older.json")
        newer.model_copy(update={"scores": scores}).write_json(tmp_path / f"{number}.json")
        with pytest.raises(SystemExit, match=r"^the results are of different image pairs, or "):
            merge_results.main([str(tmp_path / "older.json"), str(tmp_path / f"{number}.json")])


def test_a_result_of_one_descriptor_is_compared_with_the_added_ones() -> None:
    first, second = oxford("12", sift=60.0), oxford("12", ours=74.0)
    for result in (first, second):
        for row in result.scores:
            row["ap"] = row.pop("AP")
    (comparison,) = merge_results.merge(first, second).comparisons
    assert (comparison["a"], comparison["b"], comparison["a - b"]) == ("sift", "ours", -14)
