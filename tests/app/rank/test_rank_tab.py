"""The Rank tab in a browser, used as a visitor would."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from doap.app.rank.pairs import EXAMPLES, example_pair

PICTURE = ".rank-picture img"
LOADED = 60_000  # ms until a model is loaded on a busy machine


def open_tab(page: Page) -> None:
    page.get_by_role("tab", name="Rank").click()
    page.locator("#rank-list li").first.wait_for(timeout=LOADED)


def fact(page: Page, name: str) -> str:
    """Return the text of a figure above the list."""
    return page.locator("#rank-list .facts div", has_text=name).locator("dd").inner_text()


def test_a_click_selects_the_nearest_keypoint_and_bits_are_counted(visit: Page) -> None:
    open_tab(visit)
    pair = example_pair(next(iter(EXAMPLES)))
    assert pair.correct is not None
    query = int(np.flatnonzero(pair.correct.any(1))[30])
    x, y = map(float, pair.first.frames[query, :, 2])
    height, width = pair.first.image.shape
    picture = visit.locator(PICTURE).first
    box = picture.bounding_box()
    assert box is not None
    picture.click(position={"x": (x + 0.5) / width * box["width"], "y": (y + 0.5) / height * box["height"]})
    number = visit.get_by_label("number input for Keypoint number")
    expect(number).to_have_value(str(pair.nearest_frame(x, y)), timeout=LOADED)
    assert float(fact(visit, "Average Precision")) > 0
    visit.get_by_label("Descriptor").click()
    visit.get_by_role("option", name="doap-tiny-256b").click()
    expect(visit.locator("#rank-list li").first).to_contain_text("bits", timeout=LOADED)
    expect(visit.locator("#rank-list")).to_contain_text("ties")


@pytest.mark.slow
def test_the_keyboard_reaches_every_keypoint(visit: Page) -> None:
    open_tab(visit)
    number = visit.get_by_label("number input for Keypoint number")
    before = visit.locator("#rank-list .query img").get_attribute("src")
    number.fill("7")
    number.press("Tab")
    expect(visit.locator("#rank-list .query img")).not_to_have_attribute("src", str(before), timeout=LOADED)


@pytest.mark.slow
def test_own_pictures_get_an_estimated_homography_and_missing_ones_one_line(visit: Page, tmp_path: Path) -> None:
    open_tab(visit)
    pair = example_pair("coffee cup")
    files = [tmp_path / "first.png", tmp_path / "second.png"]
    for file, view in zip(files, (pair.first, pair.second), strict=True):
        Image.fromarray(view.image).save(file)
    visit.get_by_text("Own pictures").click()
    button = visit.get_by_role("button", name="Rank these pictures")
    button.click()
    expect(visit.get_by_text("choose two pictures first")).to_be_visible(timeout=LOADED)
    for name, file in zip(("first", "second"), files, strict=True):
        visit.locator(f"#rank-{name} input[type=file]").set_input_files(file)
        visit.locator(f"#rank-{name} img").wait_for()
    button.click()
    expect(visit.locator("#rank-list")).to_contain_text("estimated, not given", timeout=LOADED)
    expect(visit.get_by_label("astronaut")).not_to_be_checked()
    visit.get_by_label("astronaut").check()
    expect(visit.locator("#rank-list")).to_contain_text("under a known homography", timeout=LOADED)
