"""tools/bytes_curve.py: what is drawn, and which results are drawn together."""

from pathlib import Path

import pytest

import bytes_curve
from doap.evaluation.harness.result import Result, Score
from support.figures import points, record_figures

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SIZES = {"nested": 512, "nested@32": 128, "nested@64": 256, "sift": 512}


def write_oxford(path: Path, names: list[str], **settings: object) -> Path:
    """Write a result in which the AP of a descriptor is a function of its size, 2 more in the second sequence."""
    scores: list[Score] = [
        {"descriptor": name, "sequence": sequence, "pair": "1-2", "ap": SIZES[name] / 8 + bonus}
        for name in names
        for sequence, bonus in (("bark", 0.0), ("wall", 2.0))
    ]
    methods = [{"name": name, "bytes": SIZES[name]} for name in names]
    Result(benchmark="oxford", settings=settings, methods=methods, scores=scores).write_json(path)
    return path


def test_lengths_of_a_model_are_one_line_and_results_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = record_figures(monkeypatch)
    lengths = write_oxford(tmp_path / "a.json", ["nested", "nested@32", "nested@64"], data="here", extent=3.0)
    others = write_oxford(tmp_path / "b.json", ["sift", "nested"], data="there", extent=3.0)
    bytes_curve.main([str(lengths), str(others), "-o", str(tmp_path / "bytes.png")])
    assert (tmp_path / "bytes.png").stat().st_size > 0
    (axes,) = figures[0].axes
    drawn = {line.get_label(): points(line) for line in axes.lines}
    assert drawn == {"nested": [[128, 17], [256, 33], [512, 65]], "sift": [[512, 65]]}
    assert [line.get_linestyle() for line in axes.lines] == ["-", "None"]
    assert capsys.readouterr().out.splitlines()[:2] == [
        "Oxford, mean of the sequences",
        "    128 bytes   17.0  nested@32",
    ]


def test_the_results_of_the_docs_are_drawn_with_their_published_means(tmp_path: Path) -> None:
    files = [RESULTS / "oxford-dog.json", RESULTS / "hpatches.json"]
    drawn = bytes_curve.read_points(files)
    assert list(drawn) == ["Oxford, mean of the sequences", "HPatches, matching"]
    page = (RESULTS.parents[1] / "README.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| doap-128 |"))
    for value, panel in zip(row.split("|")[3:5], drawn.values(), strict=True):
        (own,) = (point for point in panel if point.name == "doap-128")
        assert own.bytes == 512
        assert own.precision == pytest.approx(float(value.strip(" *")), abs=0.051)
    bytes_curve.draw(drawn, tmp_path / "bytes.svg")


def test_other_results_are_one_line(tmp_path: Path) -> None:
    first = write_oxford(tmp_path / "a.json", ["nested"], extent=3.0)
    other = write_oxford(tmp_path / "b.json", ["sift"], extent=12.0)
    for files, message in (
        ([first, other], "b.json: of other settings than the result of oxford before it"),
        ([RESULTS / "look-alike-phototour.json"], "a result of phototour, not of hpatches or oxford"),
    ):
        with pytest.raises(SystemExit, match=message):
            bytes_curve.main([*map(str, files), "-o", str(tmp_path / "bytes.png")])
    with pytest.raises(SystemExit, match=r"other: not in the results \(there are: nested\)"):
        bytes_curve.main([str(first), "-o", str(tmp_path / "bytes.png"), "--models", "nested", "other"])
    assert not (tmp_path / "bytes.png").exists()


def test_models_are_selected_with_their_prefixes(tmp_path: Path) -> None:
    drawn = bytes_curve.read_points([write_oxford(tmp_path / "a.json", list(SIZES))])
    (panel,) = bytes_curve.select(drawn, ["nested"]).values()
    assert [point.name for point in panel] == ["nested", "nested@32", "nested@64"]
