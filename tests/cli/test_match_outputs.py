"""`doap match` of two images does not overwrite them."""

from pathlib import Path

import pytest
from PIL import Image

from support.command_line import Doap
from support.sample_photos import sample_photo


@pytest.fixture
def photos(tmp_path: Path) -> tuple[Path, Path]:
    """Two photos, one of which is called as the picture is by default."""
    paths = tmp_path / "matches.png", tmp_path / "right.png"
    for path in paths:
        Image.fromarray(sample_photo("coffee")[:100, :100]).save(path)
    return paths


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "matches.png: would overwrite an input; choose another path with -o"),
        (("-o", "./right.png"), "right.png: would overwrite an input; choose another path with -o"),
        (("-o", "link.png"), "link.png: would overwrite an input; choose another path with -o"),
        (("--no-figure", "--json", "right.png"), "right.png: would overwrite an input; choose another path with --js"),
        (("-o", "a.png", "--json", "a.png"), "a.png: would overwrite the picture; choose another path with --json"),
    ],
)
def test_a_file_is_not_overwritten(
    doap: Doap, photos: tuple[Path, Path], tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    (tmp_path / "link.png").symlink_to(photos[1])
    before = [path.read_bytes() for path in photos]
    # The unknown model shows that the paths are checked before any work.
    status, _, errors = doap("match", "matches.png", "right.png", "--model", "none", *options)
    assert status == 1
    assert message in " ".join(errors.split())
    assert [path.read_bytes() for path in photos] == before
    assert not (tmp_path / "a.png").exists()


def test_inputs_may_be_the_same_or_have_the_name_of_an_unused_picture(doap: Doap, photos: tuple[Path, Path]) -> None:
    status, _, errors = doap("match", photos[0], photos[0], "--model", "doap-tiny-128", "--no-figure")
    assert (status, errors) == (0, "")
