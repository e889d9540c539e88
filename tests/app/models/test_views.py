"""What the Models tab shows, against the cards."""

import itertools
import json
import re
from xml.etree import ElementTree

import doap
from doap.app.models.catalogue import list_entries, list_figures
from doap.app.models.charts import ChartPoint, render_chart
from doap.app.models.views import make_table, render_card, render_charts
from doap.networks.registry import find_weights


def test_the_table_has_every_model_and_every_figure_of_its_card() -> None:
    table = make_table({})
    rows = {row[0]: dict(zip(table["headers"], row, strict=True)) for row in table["data"]}
    assert sorted(rows) == doap.list_models()
    for name, row in rows.items():
        card = json.loads(find_weights(name).with_suffix(".json").read_text())
        assert row["bytes"] == doap.load(name).bytes
        assert set(card["origin"]["figures"].values()) <= set(row.values())


def test_points_lie_where_their_values_are() -> None:
    points = [ChartPoint("a<b", 32, 80.0, True), ChartPoint("c", 512, 82.0, False), ChartPoint("d", 128, 81.0, False)]
    chart = ElementTree.fromstring(render_chart(points, "title", "bytes per descriptor", "bytes", "mAP %"))
    square = chart.find(".//rect")
    first, second = chart.findall(".//circle")
    assert square is not None
    xs = [float(square.attrib["x"]) + 5, float(second.attrib["cx"]), float(first.attrib["cx"])]
    ys = [float(square.attrib["y"]) + 5, float(second.attrib["cy"]), float(first.attrib["cy"])]
    if xs[1] > xs[2]:
        xs[1:], ys[1:] = xs[:0:-1], ys[:0:-1]
    assert abs((xs[1] - xs[0]) - (xs[2] - xs[1])) < 0.3  # 32, 128 and 512 are equally far apart
    assert ys[0] > ys[1] > ys[2]
    labels = [node.attrib["aria-label"] for node in chart.iter("g") if "aria-label" in node.attrib]
    assert "a<b: mAP % 80.0, 32 bytes" in labels


def test_every_model_with_a_figure_can_be_pointed_at() -> None:
    figure = list_figures()[0]
    names = {entry.name for entry in list_entries() if figure in entry.figures}
    speeds = dict.fromkeys(doap.list_models(), 1000.0)
    for text, count in ((render_charts(figure, {}), 1), (render_charts(figure, speeds), 2)):
        labels = re.findall(r'role="img" aria-label="([^:"]+):', text)
        assert sorted(labels) == sorted([*names] * count)


def test_labels_do_not_overlap() -> None:
    points = [ChartPoint(f"model {number}", 32, 80 + number / 50, False) for number in range(9)]
    chart = ElementTree.fromstring(render_chart(points, "title", "x", "bytes", "y"))
    heights = sorted(float(node.attrib["y"]) for node in chart.iter("text") if node.attrib.get("class") == "name")
    assert all(b - a >= 14 for a, b in itertools.pairwise(heights))


def test_no_mark_lies_under_a_label() -> None:
    speeds = {"large": 80, "128": 463, "st": 578, "256b": 428, "open": 755, "tiny": 13667}
    heights = {"large": 83.2, "128": 83.0, "st": 82.6, "256b": 82.1, "open": 81.8, "tiny": 79.0}
    points = [ChartPoint(f"doap-{name}", speeds[name], heights[name], False) for name in speeds]
    chart = ElementTree.fromstring(render_chart(points, "title", "x", "patches/s", "y"))
    marks = [(float(node.attrib["cx"]), float(node.attrib["cy"])) for node in chart.iter("circle")]
    labels = [node for node in chart.iter("text") if node.attrib.get("class") == "name"]
    assert len(marks) == len(labels) == len(points)
    for label in labels:
        near, y = float(label.attrib["x"]), float(label.attrib["y"]) - 4
        far = near + (1 if label.attrib["text-anchor"] == "start" else -1) * 6.5 * len(str(label.text))
        under = [x for x, height in marks if min(near, far) < x < max(near, far) and abs(height - y) < 10]
        assert under == [], label.text


def test_a_card_is_escaped_and_complete() -> None:
    text = render_card(doap.list_models()[0])
    card = json.loads(find_weights(doap.list_models()[0]).with_suffix(".json").read_text())
    assert card["sha256"] in text
    assert "<details>" in text or len(card["origin"]["sources"]) <= 6
