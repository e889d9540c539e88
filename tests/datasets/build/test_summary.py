from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from PIL import Image

from doap.datasets.build.assembly import Photo, Scene
from doap.datasets.build.summary import write_summary
from doap.datasets.sets.frame_set import SOURCES
from doap.images.reconstruction.scene_frames import SceneFrames
from support.sets.small_frame_set import small_frame_set

HOSTILE = "<script>alert('\"&')</script>"


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.images: list[str | None] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "img":
            self.images.append(dict(attrs)["src"])

    def handle_data(self, data: str) -> None:
        self.text += data


def scene(name: str, source: str, note: str) -> Scene:
    ids = np.arange(3)
    frames = SceneFrames(
        source, ids, np.zeros((3, 2, 3), np.float32), ids, np.zeros((0, 2), int), np.float64(5) * ids, note
    )
    return Scene(name, [Photo(Path(f"{name}.png"), name)] * 3, frames)


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    scenes = [scene(HOSTILE, "tracks", f"by {HOSTILE}"), scene("single.png", "views", "one photo")]
    write_summary(tmp_path, small_frame_set(), scenes, [f"{HOSTILE}.jpg: cannot be decoded"])
    page = Page((tmp_path / "summary.html").read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert page.text.count(HOSTILE) == 3
    assert page.tags.count("li") == 1
    assert "Nothing was skipped." not in page.text


def test_all_sources_are_listed(tmp_path: Path) -> None:
    frames = small_frame_set()
    write_summary(tmp_path, frames, [scene("wall", "tracks", "3 points")], [])
    page = Page((tmp_path / "summary.html").read_text(encoding="utf-8"))
    assert page.images == ["sizes.png", "sheet-views.png", "sheet-static.png", "sheet-tracks.png"]
    assert all((tmp_path / str(name)).is_file() for name in page.images)
    assert f"{frames!r}; {len(frames.overlaps):,} pairs of groups overlap" in page.text
    assert "5°" in page.text
    assert "Nothing was skipped." in page.text


def test_histograms_without_values_are_left_out(tmp_path: Path) -> None:
    frames = small_frame_set()
    images = {}
    for name in ("views", "static"):
        folder = tmp_path / name
        folder.mkdir()
        chosen = frames.select(frames.sources == SOURCES.index(name))
        write_summary(folder, chosen, [scene("wall", name, "photos")], [])
        images[name] = Page((folder / "summary.html").read_text(encoding="utf-8")).images
    assert images == {"views": ["sheet-views.png"], "static": ["sizes.png", "sheet-static.png"]}
    width, height = Image.open(tmp_path / "static" / "sizes.png").size
    assert width < 2 * height  # one histogram, of sizes; there are no angles
