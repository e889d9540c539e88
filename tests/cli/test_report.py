from pathlib import Path

from doap.evaluation.harness.result import Result


def test_results_become_a_page(doap, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "results").mkdir()
    result = Result(benchmark="warped", settings={}, methods=[], scores=[{"descriptor": "sift", "ap": 43.21}])
    result.write_json(tmp_path / "results" / "warped.json")
    (tmp_path / "results" / "card.json").write_text("{}")
    status, shown, errors = doap("report", "results", "-o", "page", "--unavailable", "phototour", "romepatches")
    assert (status, errors) == (0, "")
    assert "written to page/index.html: results 1, sweeps 0, pictures 0" in shown
    assert "left out: results/card.json is no result" in shown
    page = (tmp_path / "page" / "index.html").read_text()
    assert "<td>43.2</td>" in page
    assert page.count("data set not available") == 2


def test_faults_are_one_line_and_nothing_is_written(doap, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    status, _, errors = doap("report", "nowhere.json", "-o", "page")
    assert (status, errors.count("\n")) == (1, 1)
    assert "nowhere.json: no such file" in errors
    assert not (tmp_path / "page").exists()
