"""The page as a whole, in a browser."""

import pytest
from playwright.sync_api import Page

from app.conftest import WIDTHS


@pytest.mark.parametrize("visit", WIDTHS, indirect=True)
def test_the_page_opens_and_fits_its_window(visit: Page) -> None:
    assert visit.title() == "doap"
    assert visit.get_by_role("heading", level=1).inner_text() == "doap"
    width = visit.evaluate("document.documentElement.scrollWidth")
    assert width <= visit.viewport_size["width"]  # type: ignore[index]
