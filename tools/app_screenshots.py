"""Take the pictures of docs/app.md: docs/images/app-*.webp, with the system's Chromium.

    python tools/app_screenshots.py                   # all tabs, 1280 pixels wide
    python tools/app_screenshots.py -o out --width 400

The times on the pictures are those of this machine.
"""

import argparse
import io
import shutil
import tempfile
import threading
import time
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from doap.app.server import build_server, listening
from doap.app.settings import AppSettings
from doap.demo import photos
from doap.files import atomic_file

TIMEOUT = 180_000  # milliseconds
SETTLING = 5000  # until the last of several updates is shown
MAX_HEIGHT = 2000  # pixels of a picture
QUALITY = 72


def show_match(page: Page) -> None:
    """Match the first example, and select a match."""
    page.locator("#match-keypoints").get_by_role("spinbutton").fill("500")
    page.get_by_role("button", name="Match", exact=True).click()
    page.locator("figure.doap-panel svg").first.wait_for(timeout=TIMEOUT)
    page.get_by_role("button", name="Next match").nth(1).click()


def show_overlay(page: Page) -> None:
    """Overlay the second example by its homography."""
    page.get_by_label("Example").click()
    page.get_by_role("option").nth(1).click()
    page.get_by_label("Homography").check()
    page.get_by_label("Overlay").check()
    page.get_by_role("button", name="Match", exact=True).click()
    page.locator(".doap-overlay").first.wait_for(timeout=TIMEOUT)


def show_rank(page: Page) -> None:
    """Rank the patches of an example for the query that RootSIFT ranks worst."""
    page.get_by_role("tab", name="Rank").click()
    page.locator(".doap-rank li").first.wait_for(timeout=TIMEOUT)
    page.get_by_label("Descriptor").click()
    page.get_by_role("option", name="RootSIFT").click()
    page.get_by_label("temple").check()
    page.get_by_role("button", name="Keypoint of lowest AP").click()
    page.wait_for_timeout(SETTLING)
    page.locator(".doap-rank .correct, .doap-rank .wrong").first.wait_for(timeout=TIMEOUT)


def show_learn(page: Page) -> None:
    """Train on the photos of the demo."""
    page.get_by_role("tab", name="Learn").click()
    page.locator("#learn-photos input[type=file]").set_input_files(photos.TRAIN)
    page.locator("#learn-photos .file").nth(len(photos.TRAIN) - 1).wait_for(timeout=TIMEOUT)
    page.get_by_role("button", name="Train").click()
    page.locator("#learn-summary").get_by_text("Done.").wait_for(timeout=2 * TIMEOUT)
    page.get_by_label("Query 2").check()


def show_models(page: Page) -> None:
    """Measure the speed of all models, and point at one."""
    page.get_by_role("tab", name="Models").click()
    page.get_by_role("button", name="Measure speed").click()
    page.locator("#models-charts svg").nth(1).wait_for(timeout=TIMEOUT)
    page.locator("#models-charts .point .name").first.hover()


SCENES = {
    "match": show_match,
    "overlay": show_overlay,
    "rank": show_rank,
    "learn": show_learn,
    "models": show_models,
}


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/images"))
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--scenes", nargs="*", default=list(SCENES), choices=SCENES)
    arguments = parser.parse_args()
    settings = AppSettings(port=0)
    with listening(settings) as listener, tempfile.TemporaryDirectory() as folder:
        server = uvicorn.Server(uvicorn.Config(build_server(settings, Path(folder)), log_level="warning"))
        threading.Thread(target=server.run, args=([listener],), daemon=True).start()
        while not server.started:
            time.sleep(0.1)
        _photograph(f"http://127.0.0.1:{listener.getsockname()[1]}", arguments)
        server.should_exit = True


def _photograph(address: str, arguments: argparse.Namespace) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in arguments.scenes:
            page = browser.new_context(viewport={"width": arguments.width, "height": 900}).new_page()
            page.goto(address)
            page.get_by_role("tab").first.wait_for()
            SCENES[name](page)
            page.wait_for_timeout(800)
            _write(page.screenshot(full_page=True), arguments.output / f"app-{name}.webp")
            page.context.close()
        browser.close()


def _write(content: bytes, path: Path) -> None:
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    with atomic_file(path) as temporary:
        picture.crop((0, 0, picture.width, min(picture.height, MAX_HEIGHT))).save(temporary, quality=QUALITY, method=6)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
