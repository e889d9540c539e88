"""The page: measured, quoted and missing results, each in its section and marked as such."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape
from PIL import Image

from doap.errors import DoapError
from doap.evaluation.harness.published import published
from doap.evaluation.harness.result import Result, Score
from doap.evaluation.harness.table import Row, Table
from doap.evaluation.registry import BENCHMARKS
from doap.report.gather import ReportInput, gather
from doap.report.page import templates, write_report
from doap.report.sections import QUOTED, SECTIONS

PHOTOTOUR = Result(
    benchmark="phototour",
    settings={"data": "data/<b>", "rule": "ties gain nothing"},
    methods=[{"name": name, "kind": "real", "dimensions": 128, "trained on": ""} for name in ("sift", "<mine>")],
    scores=[
        {"descriptor": name, "trained on": "", "test": "liberty", "fpr95": rate, "auc": 99.0}
        for name, rate in (("sift", 12.5), ("<mine>", 3.21))
    ],
    curves=[
        {"descriptor": name, "test": "liberty", "false positive rate": [0.001, 1.0], "recall": [0.5, 1.0]}
        for name in ("sift", "<mine>")
    ],
)


def sections(page: Path) -> dict[str, str]:
    """Return the HTML of each section, by its key."""
    return dict(re.findall(r'<section id="([^"]+)">(.*?)</section>', page.read_text(), re.DOTALL))


def test_without_results_every_section_says_so_and_quotes(tmp_path: Path) -> None:
    html = sections(write_report(ReportInput(), tmp_path / "out"))
    assert list(html) == [section.key for section in SECTIONS]
    for section in SECTIONS:
        assert "Not measured:" in html[section.key]
        assert f"<pre><code>{escape(section.command)}</code></pre>" in html[section.key]
        quoted = len(published(section.published)) if section.published else 0
        assert html[section.key].count('<tr class="quoted">') == quoted
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["index.html"]


def test_unavailable_data_is_reported(tmp_path: Path) -> None:
    html = sections(write_report(ReportInput(), tmp_path / "out", ["phototour"]))
    assert "Not measured: data set not available." in html["phototour"]
    assert "Not measured: no result was given." in html["oxford"]


@pytest.mark.parametrize(("key", "message"), [("rome", "is none of"), ("phototour", "has a result")])
def test_only_a_section_without_results_can_be_unavailable(key: str, message: str, tmp_path: Path) -> None:
    PHOTOTOUR.write_json(tmp_path / "p.json")
    with pytest.raises(DoapError, match=f"--unavailable: {key} {message}"):
        write_report(gather([tmp_path / "p.json"]), tmp_path / "out", [key])
    assert not (tmp_path / "out").exists()


def test_a_result_is_shown_with_its_rule_its_figure_and_the_quoted_rows(tmp_path: Path) -> None:
    PHOTOTOUR.write_json(tmp_path / "p.json")
    page = write_report(gather([tmp_path / "p.json", tmp_path / "p.json"]), tmp_path / "out")
    html = sections(page)["phototour"]
    assert "Not measured" not in html
    assert html.count("<b>3.21</b>") == 4  # two columns of liberty in each of two tables; the best is bold
    assert html.count("<td>12.50</td>") == 4
    assert html.count("ties gain nothing") >= 2
    assert html.count('<tr class="quoted first">') == 2
    assert "CVPR 2018" in html
    assert "&lt;mine&gt;" in html
    assert "<mine>" not in page.read_text()
    for name in ("phototour-1.png", "phototour-2.png"):
        assert f'src="{name}"' in html
        with Image.open(tmp_path / "out" / name) as picture:
            assert picture.width > 400


def test_sweeps_and_pictures_are_shown_and_copied(tmp_path: Path) -> None:
    rows = [{"batch_size": 256, "fpr95": 2.25, "epoch": None}, {"batch_size": 512, "fpr95": 1.75, "epoch": 3}]
    content = {"over": "batch_size", "recipe": "phototour-real", "settings": ["epochs=2"], "tests": ["n"], "rows": rows}
    (tmp_path / "sweep.json").write_text(json.dumps(content))
    for name, colour in (("sweep", 10), ("alignment", 20), ("label-mining-mine", 30)):
        Image.new("L", (4, 4), colour).save(tmp_path / f"{name}.png")
    html = sections(write_report(gather([tmp_path]), tmp_path / "out"))
    assert "Recipe phototour-real with epochs=2" in html["batch_size"]
    assert "<td>2.25</td>" in html["batch_size"]
    assert "FPR95 % on n" in html["batch_size"]
    for key, colour in (("batch_size", 10), ("alignment", 20), ("label-mining", 30)):
        assert "Not measured" not in html[key]
        assert f'src="{key}-1.png"' in html[key]
        with Image.open(tmp_path / "out" / f"{key}-1.png") as picture:
            assert picture.getpixel((0, 0)) == colour


@pytest.mark.parametrize(
    ("metric", "tests", "rows", "note", "cells"),
    [
        (
            {"name": "retrieval", "column": "retrieval", "label": "HPatches retrieval mAP %", "better": "more"},
            ["hpatches"],
            [{"lr": 1, "retrieval": 40.126, "retrieval hpatches": 40.126}, {"lr": 2, "retrieval": 50}],
            "Measured by HPatches retrieval mAP % on hpatches, split a; more is better.",
            ["40.13", "<b>50.00</b>"],
        ),
        (None, ["n"], [{"lr": 1, "fpr95": 2.25}, {"lr": 2, "fpr95": 1.75}],
         "Measured by FPR95 % on n, split a; less is better.", ["2.25", "<b>1.75</b>"]),
        (None, [], [{"lr": 1, "ap": 0.5, "epoch": 9}, {"lr": 2, "ap": 0.25, "epoch": 3}],
         "Measured by AP on validation scenes %; more is better.", ["<b>50.00</b>", "25.00"]),
    ],
)  # fmt: skip
def test_a_sweep_is_shown_by_its_metric(
    tmp_path: Path,
    metric: dict[str, str] | None,
    tests: list[str],
    rows: list[dict[str, float]],
    note: str,
    cells: list[str],
) -> None:
    content = {"over": "lr", "recipe": "r", "tests": tests, "split": "a", "rows": rows}
    (tmp_path / "sweep.json").write_text(json.dumps({**content, "metric": metric} if metric else content))
    html = sections(write_report(gather([tmp_path / "sweep.json"]), tmp_path / "out"))["lr"]
    assert note in html
    assert metric is None or f"<th>{metric['label']}</th>" in html
    for cell in cells:
        assert f"<td>{cell}</td>" in html
    assert html.count("<b>") == 1 + (metric is not None)  # the only test is the mean


@pytest.mark.parametrize(
    "changed", [{"scores": [{"descriptor": "sift", "ap": 1.0}]}, {"scores": []}, {"methods": [{}]}, {"curves": [{}]}]
)
def test_scores_of_another_form_are_one_line(tmp_path: Path, changed: dict[str, Any]) -> None:
    PHOTOTOUR.model_copy(update=changed).write_json(tmp_path / "p.json")
    with pytest.raises(DoapError, match=r"p\.json: not the scores of phototour in this version; measure again"):
        write_report(gather([tmp_path / "p.json"]), tmp_path / "out")
    assert not (tmp_path / "out" / "index.html").exists()


@pytest.mark.parametrize("name", ["own", "../../elsewhere"])
def test_any_other_benchmark_or_sweep_has_a_section_and_stays_in_the_folder(tmp_path: Path, name: str) -> None:
    other = Result(benchmark=name, settings={}, methods=[], scores=[{"descriptor": "sift", "ap": 1.25}])
    other.write_json(tmp_path / "other.json")
    (tmp_path / "sweep.json").write_text(json.dumps({"over": name, "rows": [{name: 1, "ap": 0.5}]}))
    Image.new("L", (4, 4)).save(tmp_path / "sweep.png")
    before = set(tmp_path.rglob("*"))
    html = sections(write_report(gather([tmp_path]), tmp_path / "deep" / "out"))[name]
    assert "Not in the paper" in html
    assert "<td>1.2</td>" in html
    new = {path for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    assert {path.parent for path in new} == {tmp_path / "deep" / "out"}
    assert len(new) == 2


def render_table(table: Table) -> str:
    """Return the HTML of a table alone."""
    return str(vars(templates().get_template("macros.html.j2").module)["table"](table))


def test_the_best_measured_number_is_bold_and_quoted_ones_never() -> None:
    rows = (Row(("a", "2.00", "-")), Row(("b", "10.0 (3.0)", "5.0")), Row(("c", "99.0", "1.0"), quoted=True))
    columns = ("method", "x", "y")
    for table, best in (
        (Table(columns, rows, better="less"), "2.00"),
        (Table(columns, rows, better="more"), "10.0 (3.0)"),
    ):
        assert re.findall("<b>(.*?)</b>", render_table(table)) == [best, "5.0"]
    assert "<b>" not in render_table(Table(columns, rows))


def test_every_benchmark_has_a_section() -> None:
    assert set(BENCHMARKS) <= {section.key for section in SECTIONS}
    assert set(QUOTED) == {section.published for section in SECTIONS if section.published}


HOSTILE = "<script>alert('&\"')</script>"


def test_hostile_names_are_escaped_everywhere(tmp_path: Path) -> None:
    """In keys, headings, cells, notes, file names, settings and attributes."""
    folder = tmp_path / "a<b>&'c"
    folder.mkdir()
    scores: list[Score] = [{"descriptor": HOSTILE, f"{HOSTILE}\nnext": "x", "ap": 1.5}]
    settings = {"data": HOSTILE, "rule": HOSTILE, HOSTILE: HOSTILE}
    result = Result(benchmark=HOSTILE, settings=settings, methods=[{"name": HOSTILE}], scores=scores)
    result.write_json(folder / "<img>.json")
    content = {"over": HOSTILE, "recipe": HOSTILE, "settings": [HOSTILE], "tests": [HOSTILE]}
    (folder / "sweep.json").write_text(json.dumps({**content, "rows": [{HOSTILE: HOSTILE, "ap": 0.5}]}))
    (folder / "card.json").write_text("{}")
    Image.new("L", (4, 4)).save(folder / 'label-mining"><script>.png')
    page = write_report(gather([folder]), tmp_path / "out").read_text()
    assert "script" in page
    assert not re.search(r"<script|<img>|<b>&'c", page)
    assert str(escape(HOSTILE)) in page
    parser = Tags()
    parser.feed(page)
    assert parser.tags <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "h4", "p", "code", "i", "nav", "ol", "ul",
        "li",
        "a", "span", "section", "div", "table", "tr", "th", "td", "b", "br", "figure", "img", "figcaption", "details",
        "summary", "pre",
    }  # fmt: skip
    assert parser.attributes <= {"lang", "charset", "name", "content", "class", "href", "id", "src", "alt"}


class Tags(HTMLParser):
    """Collects the names of all tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_a_page_does_not_replace_the_pictures_that_it_shows(tmp_path: Path) -> None:
    names = [f"alignment-{number}.png" for number in (2, 3)]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    with pytest.raises(DoapError, match=r"alignment-2.png: is in the folder of the page.*choose another output"):
        write_report(gather([tmp_path]), tmp_path)
    assert [(tmp_path / name).read_bytes() for name in names] == [name.encode() for name in names]
