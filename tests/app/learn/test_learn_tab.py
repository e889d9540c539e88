"""The Learn tab in a browser, used as a visitor would."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from doap import load
from doap.demo import photos

pytestmark = pytest.mark.usefixtures("shortest_trainings")
STARTED, FINISHED = 60_000, 240_000  # ms on a busy machine


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Six small photos, and a flat one."""
    paths = []
    for source in (*photos.TEST, photos.TRAIN[0], photos.TRAIN[4]):
        path = tmp_path / f"{source.stem}.png"
        with Image.open(source) as image:
            image.convert("RGB").resize((image.width // 2, image.height // 2)).save(path)
        paths.append(path)
    Image.fromarray(np.zeros((50, 50), np.uint8)).save(tmp_path / "flat.png")
    return [*paths, tmp_path / "flat.png"]


def choose(page: Page, files: list[Path]) -> None:
    page.get_by_role("tab", name="Learn").click()
    page.locator("#learn-photos input[type=file]").set_input_files(files)
    expect(page.locator("#learn-photos")).to_contain_text(files[-1].suffix)
    expect(page.locator("#learn-photos tr, #learn-photos .file")).to_have_count(len(files))


@pytest.mark.slow
def test_a_descriptor_is_trained_and_downloaded(visit: Page, files: list[Path], tmp_path: Path) -> None:
    choose(visit, files)
    visit.get_by_label("256 bits").check()
    visit.get_by_role("button", name="Train").click()
    expect(visit.locator("#learn-lists")).to_contain_text("epoch 1", timeout=FINISHED)
    visit.get_by_label("Query 2").check()
    expect(visit.locator("#learn-summary")).to_contain_text("Done.", timeout=FINISHED)
    expect(visit.locator("#learn-summary")).to_contain_text("Left out: flat.png: only 0 keypoints")
    expect(visit.locator("#learn-curves figure")).to_have_count(2)
    expect(visit.locator("#learn-lists .baseline")).to_contain_text("RootSIFT")
    expect(visit.get_by_label("Query 2")).to_be_checked()
    for name in ("Download the weights", "Download their card"):
        with visit.expect_download() as download:
            visit.get_by_role("button", name=name).or_(visit.get_by_role("link", name=name)).click()
        download.value.save_as(tmp_path / download.value.suggested_filename)
    model = load(tmp_path / "own-256b.safetensors")
    assert (model.kind, model.network.dimensions) == ("binary", 256)


@pytest.mark.slow
def test_a_training_is_stopped_and_the_page_lives_on(visit: Page, files: list[Path]) -> None:
    choose(visit, files)
    visit.get_by_role("button", name="Train").click()
    expect(visit.locator("#learn-summary")).to_contain_text("Preparing", timeout=STARTED)
    visit.get_by_role("button", name="Stop").click()
    expect(visit.locator("#learn-summary")).to_contain_text("Stopped.", timeout=STARTED)
    visit.get_by_role("button", name="Train").click()
    expect(visit.locator("#learn-summary")).to_contain_text("Preparing", timeout=STARTED)
