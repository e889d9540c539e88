from pathlib import Path

from doap.evaluation.harness.result import Result
from support.command_line import Doap


def test_results_become_a_page(doap: Doap, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    result = Result(
        benchmark="warped",
        settings={"keypoints": 100},
        methods=[{"name": "sift", "bytes": 512}],
        scores=[{"descriptor": "sift", "pair": "a/0", "ap": 43.21, "correct neighbours": 50.0}],
    )
    result.write_json(tmp_path / "results" / "warped.json")
    (tmp_path / "results" / "card.json").write_text("{}")
    unavailable = ("--unavailable", "phototour", "--unavailable", "romepatches")
    status, shown, errors = doap("report", "results", "-o", "page", *unavailable)
    assert (status, errors) == (0, "")
    assert "written to page/index.html: results 1, sweeps 0, pictures 0" in shown
    assert "left out: results/card.json is not a result" in shown
    page = (tmp_path / "page" / "index.html").read_text()
    assert "<td>43.2</td>" in page
    assert page.count("data set not available") == 2


def test_errors_are_one_line_and_nothing_is_written(doap: Doap, tmp_path: Path) -> None:
    status, _, errors = doap("report", "nowhere.json", "-o", "page")
    assert (status, errors.count("\n")) == (1, 1)
    assert "nowhere.json: no such file" in errors
    assert not (tmp_path / "page").exists()
