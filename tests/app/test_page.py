"""The page as a whole, in a browser: it fits, is accessible, and lives on this machine alone."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.conftest import WIDTHS, accessibility_faults
from doap.app.server import TABS


def see_list(page: Page) -> None:
    """Wait for the list of the first query, which has correct and wrong patches with their names."""
    expect(page.locator("#rank-list li")).to_have_count(12)
    for label in ("correct", "wrong"):
        assert page.locator(f"#rank-list li.{label}").first.inner_text().endswith(label)
    for image in page.locator("#rank-list img").all():
        assert image.get_attribute("alt")


def train_on_nothing(page: Page) -> None:
    """Press Train without a photo."""
    page.get_by_role("button", name="Train").click()
    expect(page.get_by_text("0 photos chosen; choose 4 to 30 photos")).to_be_visible()


FILL = {"Rank": see_list, "Learn": train_on_nothing}
"""What a visitor does in a tab before it is judged."""


@pytest.mark.parametrize("visit", WIDTHS, indirect=True)
def test_the_tabs_fit_their_window_and_are_accessible(visit: Page) -> None:
    assert visit.title() == "doap"
    assert visit.get_by_role("heading", level=1).inner_text() == "doap"
    for name in TABS:
        visit.get_by_role("tab", name=name).click()
        visit.get_by_role("tabpanel").filter(visible=True).first.wait_for()
        FILL.get(name, lambda _: None)(visit)
        width = visit.evaluate("document.documentElement.scrollWidth")
        assert width <= visit.viewport_size["width"], name  # type: ignore[index]
        visit.wait_for_function("!document.querySelector('.pending, .generating')")  # shown faded meanwhile
        assert accessibility_faults(visit) == [], name


def test_nothing_on_the_page_names_another_host() -> None:
    folder = Path(__file__).parents[2] / "src" / "doap" / "app"
    sources = [path for path in folder.rglob("*") if path.suffix in (".py", ".js", ".css", ".j2")]
    addresses = [(path.name, line) for path in sources for line in path.read_text().splitlines() if "://" in line]
    assert {name for name, _ in addresses} <= {"server.py", "matches.js"}  # its own address, the name space of SVG
