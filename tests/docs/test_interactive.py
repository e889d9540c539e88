"""The interactive figure computes what the library does: in node, and as a page in a browser."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from doap.evaluation.metrics.average_precision import average_precision
from doap.objectives.average_precision import relaxed_average_precision, soft_histogram
from support.pages import DOCS

FOLDER = DOCS / "interactive"
MAX_DISTANCE = 2.0


def expected(distances: list[float], is_match: list[bool], bins: int) -> tuple[float, list[float]]:
    """Return the relaxed AP of a list and its gradient by automatic differentiation of the definition."""
    values = torch.tensor([distances], dtype=torch.float64, requires_grad=True)
    matches = torch.tensor([is_match], dtype=torch.float64)
    width = MAX_DISTANCE / bins
    histograms = (soft_histogram(values, weights, bins, width) for weights in (matches, torch.ones_like(matches)))
    precision = relaxed_average_precision(*histograms)[0]
    (gradient,) = torch.autograd.grad(precision, values)
    return precision.item(), gradient[0].tolist()


def random_lists() -> list[tuple[list[float], list[bool], int]]:
    """Return random lists, among them some with ties and with items at both ends of the range."""
    random = np.random.default_rng(0)
    lists = []
    for index in range(40):
        count = int(random.integers(2, 30))
        distances = random.uniform(0, MAX_DISTANCE, count).round(1 if index % 2 else 6)
        is_match = random.random(count) < 0.4
        is_match[0] = True
        lists.append((distances.tolist(), is_match.tolist(), int(random.integers(2, 51))))
    return [*lists, ([0.0, 2.0, 1.0], [True, True, False], 10)]


def test_the_script_computes_the_objective_of_the_library() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    lists = random_lists()
    script = json.dumps(str(FOLDER / "average-precision.js"))
    program = f"""
        const {{ relaxedAveragePrecision, exactAveragePrecision }} = require({script});
        const lists = {json.dumps(lists)};
        console.log(JSON.stringify(lists.map(([d, m, b]) => {{
            const {{ ap, gradient }} = relaxedAveragePrecision(d, m, b, {MAX_DISTANCE});
            return [ap, gradient, exactAveragePrecision(d, m)];
        }})));
    """
    printed = subprocess.run([node, "-e", program], capture_output=True, text=True, check=True).stdout
    for (distances, is_match, bins), (ap, gradient, exact) in zip(lists, json.loads(printed), strict=True):
        value, slopes = expected(distances, is_match, bins)
        assert ap == pytest.approx(value, abs=1e-12)
        assert gradient == pytest.approx(slopes, abs=1e-9)
        assert exact == pytest.approx(average_precision(np.array(distances), np.array(is_match)), abs=1e-12)


@pytest.mark.slow
def test_the_page_shows_them_in_a_browser(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium")
    matches, others, bins = [0.3, 1.13], [0.62, 0.9, 1.4], 12
    address = (
        f"{(FOLDER / 'average-precision.html').as_uri()}#matches={_join(matches)}&others={_join(others)}&bins={bins}"
    )
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}",
        "--dump-dom",
        address,
    ]
    page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    value, gradient = expected([*matches, *others], [True] * 2 + [False] * 3, bins)
    assert re.search(r'<output id="ap">([\d.]+)<', page)[1] == f"{value:.4f}"  # type: ignore[index]
    cells = [html.unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", page)]
    rows = np.array(sorted(zip([*matches, *others], gradient, strict=True)))
    shown = np.array([cells[1::3], cells[2::3]], float).T
    assert shown == pytest.approx(rows, abs=6e-5)
    assert page.count('role="slider"') == 5
    assert page.count('tabindex="0"') == 5


def test_the_figure_loads_nothing_from_elsewhere() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text, path.name


def _join(numbers: list[float]) -> str:
    return ",".join(map(str, numbers))
