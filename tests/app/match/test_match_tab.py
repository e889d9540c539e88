"""The Match tab, used as a person would, in a browser."""

import csv
import io
import re
import time
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from app.conftest import WIDTHS, accessibility_faults
from doap.app.match.examples import list_examples
from doap.app.match.session import MatchSession, open_store
from doap.app.settings import AppSettings


def choose_methods(page: Page, *names: str) -> None:
    """Replace the chosen methods."""
    field = page.get_by_label("Methods, one to 3")
    page.locator("#match-methods").get_by_title("Clear").click()
    for name in names:
        field.fill(name)
        page.get_by_role("option", name=name, exact=True).click()
    field.press("Escape")


def set_keypoints(page: Page, count: int) -> None:
    page.locator("#match-keypoints").get_by_role("spinbutton").fill(str(count))


def match(page: Page) -> None:
    page.get_by_role("button", name="Match", exact=True).click()
    expect(page.locator("#match-status")).to_contain_text(re.compile("Done|Nothing was verified"))


def last_session(page: Page, settings: AppSettings) -> MatchSession:
    """Return the matches on the page, which its links of downloads name."""
    link = page.locator("#match-links a").first.get_attribute("href")
    session = open_store(settings).find(str(link).split("/")[3])
    assert session is not None
    return session


def press_until(page: Page, key: str, name: str) -> None:
    """Press a key until an element with this name has the focus."""
    for _ in range(60):
        page.keyboard.press(key)
        if (
            page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.innerText")
            == name
        ):
            return
    pytest.fail(f"{name} is not reached by {key}")


@pytest.mark.slow
@pytest.mark.parametrize("visit", WIDTHS, indirect=True)
def test_an_example_is_matched_seen_and_downloaded(visit: Page, app_settings: AppSettings) -> None:
    choose_methods(visit, "ORB", "RootSIFT")
    set_keypoints(visit, 400)
    match(visit)
    panels = visit.locator("figure.doap-panel")
    expect(panels).to_have_count(2)
    session = last_session(visit, app_settings)
    assert session.options.methods == ("orb", "rootsift")
    expected = session.results[0]
    assert (
        f"{int(expected.matches.inliers.sum())} verified of {len(expected.matches)} mutual" in panels.first.inner_text()
    )
    assert visit.locator("#match-table tbody tr").count() == 2
    assert accessibility_faults(visit) == []

    # The ratio re-filters what was found; the features stay the same objects.
    visit.get_by_text("Reproduce: Python and command line").click()
    visit.locator("#match-ratio").get_by_role("spinbutton").fill("0.8")
    expect(visit.locator("#match-python")).to_contain_text("ratio=0.8")
    refined = last_session(visit, app_settings)
    assert refined.results[0].first is expected.first
    assert len(refined.results[0].matches) < len(expected.matches)

    visit.get_by_label("Keypoints", exact=True).check()
    expect(visit.locator("path.doap-circles")).to_have_count(4)
    visit.get_by_label("Homography").check()
    visit.get_by_label("Overlay").check()
    expect(panels.first.locator(".doap-overlay img, .doap-message").first).to_be_visible()
    visit.get_by_label("Mutual").check()
    panels.first.get_by_role("button", name="Next match").click()
    expect(panels.first.get_by_role("status")).to_contain_text("Match 1 of")
    expect(panels.first.get_by_role("img", name="Patch in the first picture")).to_be_visible()

    with visit.expect_download() as download:
        visit.get_by_role("link", name="Download csv of ORB").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert len(rows) == len(last_session(visit, app_settings).results[0].matches)
    assert visit.evaluate("document.documentElement.scrollWidth") <= visit.viewport_size["width"]  # type: ignore[index]


@pytest.mark.slow
def test_pictures_are_uploaded_matched_and_deleted_afterwards(visit: Page, app_folder: Path, tmp_path: Path) -> None:
    names = ("mine & <b>.png", "other.png")
    for name, path in zip(names, list_examples()[0].paths, strict=True):
        Image.open(path).resize((370, 250)).save(tmp_path / name)
    for number, name in enumerate(names):
        block = visit.locator(("#match-first", "#match-second")[number])
        block.get_by_role("button", name="Remove Image").click()
        block.locator("input[type=file]").set_input_files(tmp_path / name)
        expect(block.locator("img")).to_be_visible()
    choose_methods(visit, "ORB")
    set_keypoints(visit, 300)
    match(visit)
    visit.get_by_text("Reproduce: Python and command line").click()
    visit.get_by_role("button", name="Copy as command").click()
    assert "--model orb --max-keypoints 300" in visit.evaluate("navigator.clipboard.readText()")
    assert any("other.png" in path.name for path in app_folder.rglob("*.png"))
    visit.context.close()
    end = time.monotonic() + 20
    while any("other.png" in path.name for path in app_folder.rglob("*.png")):
        assert time.monotonic() < end, "the upload was not deleted"
        time.sleep(0.1)


@pytest.mark.slow
def test_the_tab_is_used_by_keyboard_alone(visit: Page) -> None:
    set_keypoints(visit, 100)
    visit.get_by_role("tab", name="Match").focus()
    press_until(visit, "Tab", "Match")
    visit.keyboard.press("Enter")
    expect(visit.locator("#match-status")).to_contain_text("Done")
    press_until(visit, "Tab", "Next match")
    visit.keyboard.press("Enter")
    visit.keyboard.press("Enter")
    expect(visit.locator("figure.doap-panel").first.get_by_role("status")).to_contain_text("Match 2 of")


@pytest.mark.slow
def test_a_fault_is_one_line_and_the_page_lives_on(visit: Page, tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n")
    block = visit.locator("#match-first")
    block.get_by_role("button", name="Remove Image").click()
    block.locator("input[type=file]").set_input_files(path)
    visit.get_by_role("button", name="Match", exact=True).click()
    alert = visit.get_by_test_id("toast-body")
    expect(alert).to_contain_text("bomb.png: not an image in a known format")
    assert next(line for line in alert.inner_text().splitlines() if "bomb.png" in line).endswith(
        "choose another picture"
    )
    visit.get_by_label("Example").click()
    visit.get_by_role("option", name=list_examples()[1].name).click()
    choose_methods(visit, "ORB")
    set_keypoints(visit, 200)
    match(visit)
    expect(visit.locator("figure.doap-panel")).to_have_count(1)

    # The matches of the example do not stay beside another picture.
    block.get_by_role("button", name="Remove Image").click()
    block.locator("input[type=file]").set_input_files(path)
    visit.get_by_role("button", name="Match", exact=True).click()
    expect(visit.locator("#match-status")).to_contain_text("Failed: bomb.png: not an image in a known format")
    expect(visit.locator("figure.doap-panel")).to_have_count(0)


@pytest.mark.slow
def test_work_is_cancelled(visit: Page, app_settings: AppSettings) -> None:
    before = len(open_store(app_settings))
    visit.get_by_label("Example").click()
    visit.get_by_role("option", name=list_examples()[2].name).click()
    visit.locator("#match-wide").get_by_role("checkbox").check()
    status = visit.locator("#match-status")
    for _ in range(3):  # on a busy machine Gradio now and then ends a cancelled event with an error
        visit.get_by_role("button", name="Match", exact=True).click()
        expect(status.locator("progress")).to_be_visible()
        visit.get_by_role("button", name="Cancel").first.click()
        expect(status).to_contain_text(re.compile("Cancelled|Error"))
        if "Cancelled" in status.inner_text():
            break
    expect(status).to_contain_text("Cancelled")
    expect(visit.locator("figure.doap-panel")).to_have_count(0)
    assert len(open_store(app_settings)) <= before  # visitors of other tests may still leave
