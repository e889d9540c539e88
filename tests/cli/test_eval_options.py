"""What the benchmarks' verbs share."""

import json
from pathlib import Path

import pytest

from support.small_models import with_extents
from support.small_pairs import write_sequence

EXTENTS = {"dog": 5.0, "harris": 3.0}


@pytest.mark.parametrize(
    ("verb", "options", "expected"),
    [
        ("pairs", ("--detector", "dog"), 5.0),
        ("pairs", ("--detector", "harris"), 3.0),
        ("pairs", ("--detector", "hessian"), 12.0),
        ("pairs", ("--detector", "dog", "--extent", "4"), 4.0),
        ("oxford", ("--detector", "harris", "--extent", "own"), 3.0),
        ("warped", ("--copies", 1), 5.0),
    ],
)
def test_each_model_is_judged_at_its_own_extent_for_the_detector(  # type: ignore[no-untyped-def]
    doap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, options: tuple[object, ...], expected: float
) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    write_sequence(tmp_path / "data" / "a", 0)
    model = with_extents(tmp_path / "mine.safetensors", **EXTENTS)
    words = ("--data", tmp_path / "data", "--models", model, "--keypoints", 40, "--json", "o.json", *options)
    assert doap("eval", verb, *words)[0] == 0
    (about,) = json.loads((tmp_path / "o.json").read_text())["methods"]
    assert about["extent"] == expected
