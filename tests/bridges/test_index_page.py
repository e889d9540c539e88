"""The page of all bridges: its blocks run as they stand."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import skimage
from PIL import Image

from doap.cli.main import main
from folders.conftest import open_in_process

PAGE = Path(__file__).parents[2] / "docs" / "bridges" / "README.md"
SECTIONS = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", PAGE.read_text(), re.MULTILINE))


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("folders.describing", "folders.matching", "bridges.colmap.project"):
        monkeypatch.setattr(f"doap.{module}.open_engine", open_in_process)
    monkeypatch.setattr("doap.folders.describing.start_loading", lambda *_: None)


def blocks(section: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the content of each block of code, with small models in place of large ones."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        yield language, re.sub(r"\bdoap-(128|256b)\b", r"doap-tiny-\1", block)


@pytest.mark.slow
@pytest.mark.parametrize("title", SECTIONS)
def test_the_blocks_of_a_section_run(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for name, image in zip(("left.jpg", "right.jpg"), skimage.data.stereo_motorcycle()[:2], strict=True):
        for path in (Path(name), Path("photos", name)):
            Image.fromarray(image[150:400, 100:420]).save(path, quality=95)
    for language, block in blocks(SECTIONS[title]):
        if language == "python":
            exec(block, {})
        for line in block.splitlines():
            if line.startswith("doap "):
                monkeypatch.setattr(sys, "argv", shlex.split(line))
                with pytest.raises(SystemExit) as ended:
                    main()
                assert not ended.value.code, line


def test_every_page_is_listed() -> None:
    pages = {path.name for path in PAGE.parent.glob("*.md")} - {PAGE.name}
    assert pages == set(re.findall(r"\]\((\w+\.md)\)", PAGE.read_text()))
