"""Fixtures of the page: a server on loopback, and a headless browser that must not leave it."""

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from doap.app.learn import jobs
from doap.app.server import build_server, listening
from doap.app.settings import AppSettings

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PERMISSIONS = ["clipboard-read", "clipboard-write"]
TIMEOUT = 120_000  # milliseconds until a browser gives up; the machine may be busy
WIDTHS = (1280, 400)  # pixels: a desktop and a telephone
SETTLING_SECONDS = 20.0  # for a page whose components are being updated


# Gradio names the place of a missing picture on an element without a role; it is not ours.
IGNORED_RULES = {"aria-prohibited-attr"}


def accessibility_faults(page: Page) -> list[tuple[str, list[str]]]:
    """Return the rules of accessibility that the page breaks, and where: names, roles, contrast, order and others.

    A component that is being updated is shown faded, which breaks the rule of contrast for that time: faults count if
    they are still there after `SETTLING_SECONDS`.
    """
    end = time.monotonic() + SETTLING_SECONDS
    while True:
        found = [one for one in Axe().run(page).response["violations"] if one["id"] not in IGNORED_RULES]
        if not found or time.monotonic() > end:
            return [(one["id"], [str(node["target"]) for node in one["nodes"]]) for one in found]
        page.wait_for_timeout(500)


@pytest.fixture
def shortest_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trainings of a planned second, which have the fewest epochs and points, end however busy the machine is."""
    monkeypatch.setattr(jobs, "CUT_AFTER", 120)
    monkeypatch.setattr(jobs, "THREADS", 1)  # two wait for each other beside other tests


@pytest.fixture(scope="session")
def app_settings() -> AppSettings:
    """Settings of the page under test."""
    return AppSettings(port=0, max_upload_bytes=2_000_000, max_pixels=4_000_000, max_side=4000, learn_seconds=1)


@pytest.fixture(scope="session")
def app_folder() -> Iterator[Path]:
    """The folder of the files of visitors."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def app_url(app_settings: AppSettings, app_folder: Path) -> Iterator[str]:
    """The address of the page, served by a thread."""
    with listening(app_settings) as listener:
        server = uvicorn.Server(uvicorn.Config(build_server(app_settings, app_folder), log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium, headless; without it the test is skipped."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("needs a browser: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=WIDTHS[:1])
def visit(request: pytest.FixtureRequest, browser: Browser, app_url: str) -> Iterator[Page]:
    """The page in the browser, 1280 pixels wide unless a test asks for other widths by `indirect` parameters.

    The test fails if the browser asked another host for anything, or a script of the page failed.
    """
    context = browser.new_context(viewport={"width": request.param, "height": 900}, permissions=PERMISSIONS)
    context.set_default_timeout(TIMEOUT)
    expect.set_options(timeout=TIMEOUT)
    page = context.new_page()
    requests: list[str] = []
    failures: list[Error] = []
    page.on("request", lambda sent: requests.append(sent.url))
    page.on("pageerror", lambda failure: failures.append(failure))
    page.goto(app_url)
    page.get_by_role("tab").first.wait_for()
    yield page
    context.close()
    hosts = {urlsplit(url).netloc for url in requests if urlsplit(url).scheme not in ("data", "blob")}
    assert hosts == {urlsplit(app_url).netloc}
    assert failures == []
