"""The Models tab in a browser."""

import pytest
from playwright.sync_api import Page, expect

import doap
from doap.app.models import speed


@pytest.mark.slow
def test_models_are_compared_and_their_cards_read(visit: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "PATCHES", speed.WARM_UP)
    visit.get_by_role("tab", name="Models").click()
    visit.get_by_role("button", name="Measure speed").click()
    expect(visit.locator("#models-charts svg")).to_have_count(2)
    name = visit.locator("#models-charts .point .name").first
    name.hover()
    expect(visit.locator("#models-charts .point .detail").first).to_be_visible()
    visit.get_by_label("Card").click()
    visit.get_by_role("option", name=doap.list_models()[-1], exact=True).click()
    expect(visit.locator("#models-card")).to_contain_text(str(doap.load(doap.list_models()[-1]).bytes))
    header = visit.locator("#models-table").get_by_role("button", name="bytes").first
    header.or_(visit.locator("#models-table th").filter(has_text="bytes").first).first.click()
    expect(visit.locator("#models-table")).to_contain_text("patches/s")
