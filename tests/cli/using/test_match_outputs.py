"""`doap match` of two images does not overwrite them."""

from pathlib import Path

import pytest
from PIL import Image

from doap import Features
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


def test_options_of_describing_are_refused_where_nothing_is_described(doap: Doap, tmp_path: Path) -> None:
    """Features are never those of another model than they were described with."""
    (tmp_path / "photos").mkdir()
    for name in ("a.png", "b.png"):
        Image.fromarray(sample_photo("coffee")[:100, :100]).save(tmp_path / "photos" / name)
    for output in ("npz", "features.h5"):
        assert doap("describe", "photos", "-o", output, "--model", "doap-tiny-128")[0] == 0
    two = ("match", "npz/a.png.npz", "npz/b.png.npz", "--json", "matches.json")
    assert doap(*two)[0] == 0
    for command in (two, ("match", "features.h5", "--exhaustive")):
        for option, value in (("--model", "doap-128"), ("--max-keypoints", "10"), ("--device", "cpu")):
            status, _, errors = doap(*command, option, value)
            message = f"doap: {option}: has no effect on features, which are described already; leave it out"
            assert (status, " ".join(errors.split())) == (1, message)
    Features.load("features.h5", image="a.png").save("a.h5")
    written = Path("matches.json").read_text().replace("npz/a.png.npz", "a.h5")
    assert doap("match", "a.h5", "npz/b.png.npz", "--json", "matches.json")[0] == 0
    assert Path("matches.json").read_text() == written
    one_image = ("match", "npz/a.png.npz", "photos/b.png", "--json", "matches.json", "--model", "doap-tiny-128")
    assert doap(*one_image)[0] == 0


@pytest.mark.parametrize("option", [("--workers", "2"), ("--force",), ("--engine", "ray")])
def test_options_of_many_pairs_are_refused_for_two(doap: Doap, photos: tuple[Path, Path], option: tuple[str]) -> None:
    status, _, errors = doap("match", *photos, "--no-figure", *option)
    assert (status, errors) == (1, f"doap: {option[0]}: has no effect on two images; leave it out\n")


def test_a_picture_that_is_not_drawn_is_refused(doap: Doap, photos: tuple[Path, Path], tmp_path: Path) -> None:
    status, _, errors = doap("match", *photos, "--model", "none", "--no-figure", "-o", "x.png")
    assert (status, errors) == (1, "doap: --output: has no effect on matches that are not drawn; leave it out\n")
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize("option", [("--json", "x.json"), ("--no-figure",)])
def test_options_of_two_images_are_refused_for_many(doap: Doap, tmp_path: Path, option: tuple[str]) -> None:
    status, _, errors = doap("match", "features.h5", "--exhaustive", *option)
    assert (status, errors.count("\n")) == (1, 1)
    assert "has no effect on many pairs, whose matches are written to a .h5 file; leave it out" in errors
    assert not (tmp_path / "x.json").exists()


def test_the_threshold_is_refused_where_nothing_is_verified(doap: Doap, photos: tuple[Path, Path]) -> None:
    status, _, errors = doap("match", *photos, "--model", "none", "--geometry", "none", "--threshold", "3")
    assert status == 1
    assert "--threshold: has no effect on matches that are not verified; leave it out" in " ".join(errors.split())
