"""The command line, run as a user runs it: in a process of its own where the exit status matters."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import skimage
from PIL import Image
from typer.testing import CliRunner

from doap.choices import MAX_SEED
from doap.cli import main
from doap.cli.data import commands as data
from doap.cli.evaluating import commands as evaluating
from doap.features.drawing import GAP
from doap.geometry.homographies import transform_points
from doap.images.reading import read_grey
from support.command_line import Doap

STEREO = Path(skimage.__file__).parent / "data"
LEFT, RIGHT = str(STEREO / "motorcycle_left.png"), str(STEREO / "motorcycle_right.png")


SUBCOMMANDS = [
    *([subcommand] for subcommand in main.COMMANDS if subcommand not in ("eval", "data", "show")),
    *(["eval", subcommand] for subcommand in evaluating.COMMANDS),
    *(["data", subcommand] for subcommand in data.COMMANDS),
    ["show", "alignment"],
]
SEEDED = [
    *(["dbow"], ["show", "alignment"], ["eval", "hpatches"], ["eval", "warped"]),
    *(
        ["data", subcommand]
        for subcommand in ("build", "hpatches", "look-alike", "mine", "pairs", "show", "split", "tilt")
    ),
]


@pytest.mark.parametrize("subcommand", SUBCOMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(subcommand: list[str]) -> None:
    shown = CliRunner().invoke(main.app, [*subcommand, "--help"])
    assert shown.exit_code == 0
    assert f"Example: doap {' '.join(subcommand)}" in " ".join(shown.output.split())


@pytest.mark.parametrize("subcommand", SEEDED, ids=" ".join)
def test_seeds_beyond_those_of_torch_are_refused(doap: Doap, subcommand: list[str]) -> None:
    status, _, errors = doap(*subcommand, "--seed", MAX_SEED + 1)
    assert (status, "Invalid value for '--seed'" in errors, str(MAX_SEED) in errors) == (2, True, True)


@pytest.mark.parametrize(
    "command",
    [
        ("match", "a.png", "b.png", "--json", "-"),
        ("match", "-", "b.png"),
        ("describe", "photos", "-o-"),
        ("data", "build", "photos", "-", "-o", "set"),
        ("eval", "warped", "sift", "--data", "photos", "--csv=-"),
    ],
    ids=" ".join,
)
def test_standard_input_and_output_are_refused(doap: Doap, tmp_path: Path, command: tuple[str, ...]) -> None:
    message = "doap: -: standard input and output are not supported; name a file or folder\n"
    assert doap(*command) == (1, "", message)
    assert not any(tmp_path.iterdir())


def test_the_installed_command_runs() -> None:
    command = Path(sys.executable).parent / "doap"
    shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("doap 0.")


def test_a_stereo_pair_is_matched_drawn_and_written(doap: Doap, tmp_path: Path) -> None:
    output = ("-o", "out/matches.png", "--json", "out/matches.json")
    status, shown, _ = doap("match", LEFT, RIGHT, "--max-keypoints", 800, *output)
    assert status == 0
    report = json.loads((tmp_path / "out" / "matches.json").read_text())
    assert report["verified"] > 300
    assert f"{report['verified']} verified matches of {len(report['matches'])} mutual ones" in shown
    good = [m for m in report["matches"] if m["verified"]]
    # The pair is rectified: a correct match lies on the same row, to the left.
    assert np.mean([abs(m["a"][1] - m["b"][1]) < 2 for m in good]) > 0.98
    assert np.mean([m["a"][0] >= m["b"][0] - 2 for m in good]) > 0.97
    with Image.open(tmp_path / "out" / "matches.png") as picture, Image.open(LEFT) as left:
        drawn = np.asarray(picture.convert("RGB")).astype(int)[-left.height :]  # below the title
        assert picture.width == 2 * left.width + GAP
    dots = np.array([point for m in good for point in (m["a"], [m["b"][0] + left.width + GAP, m["b"][1]])])
    columns, rows = dots.round().astype(int).T
    assert np.mean(np.ptp(drawn[rows, columns], axis=1) > 60) > 0.95  # coloured dots at both ends of every match
    plain = np.ptp(drawn, axis=2) == 0
    assert np.mean((drawn[:, : left.width, 0] == read_grey(LEFT))[plain[:, : left.width]]) > 0.99


def test_a_level_pair_has_more_matches_of_upright_keypoints(doap: Doap, tmp_path: Path) -> None:
    verified = {}
    for frames in ("detected", "upright"):
        arguments = ("--frames", frames, "--model", "doap-tiny-128", "--max-keypoints", 400, "--no-figure")
        assert doap("match", LEFT, RIGHT, *arguments, "--json", "matches.json")[0] == 0
        verified[frames] = json.loads((tmp_path / "matches.json").read_text())["verified"]
    assert verified["upright"] > 1.05 * verified["detected"]


def variants(folder: Path) -> dict[str, Path]:
    colour = Image.open(STEREO / "astronaut.png").crop((100, 0, 400, 300))
    deep = np.asarray(colour.convert("L")).astype(np.uint16) * 200
    rotated = Image.Exif()
    rotated[0x0112] = 6
    colour.convert("L").save(folder / "grey.png")
    colour.save(folder / "colour.jpg", quality=95)
    alpha = colour.convert("RGBA")
    alpha.putalpha(Image.new("L", colour.size, 255))
    alpha.save(folder / "alpha.png")
    Image.fromarray(deep).save(folder / "deep.png")
    colour.rotate(90, expand=True).save(folder / "rotated.jpg", exif=rotated, quality=95)
    colour.convert("P").save(folder / "palette.png")
    return {p.stem: p for p in folder.iterdir()}


@pytest.mark.parametrize("variant", ["colour", "alpha", "deep", "rotated", "palette"])
def test_any_kind_of_image_is_matched(doap: Doap, tmp_path: Path, variant: str) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    images = variants(folder)
    words = ("--model", "doap-tiny-128", "--json", "m.json", "--geometry", "homography")
    status, _, _ = doap("match", images["grey"], images[variant], *words)
    assert status == 0
    report = json.loads((tmp_path / "m.json").read_text())
    assert report["verified"] > 100
    corners = np.array([[0, 0], [299, 0], [0, 299], [299, 299]], np.float64)
    sent = transform_points(corners, np.array(report["matrix"]))
    np.testing.assert_allclose(sent, corners, atol=1.5)  # upright, in place


def test_unrelated_images_have_no_matches_and_that_is_no_error(doap: Doap) -> None:
    words = ("--max-keypoints", 800, "--json", "m.json")
    status, shown, _ = doap("match", STEREO / "coffee.png", STEREO / "brick.png", *words)
    assert status == 0
    assert "no matches found" in shown
    assert json.loads(Path("m.json").read_text())["matrix"] is None


def bad_image(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.jpg"
    if kind == "text":
        path.write_text("these are words")
    elif kind == "one-pixel":
        Image.new("L", (1, 1)).save(path)
    elif kind == "flat":
        Image.new("L", (300, 200), 128).save(path)
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "no such file"),
        ("text", "not an image"),
        ("one-pixel", "keypoint"),
        ("flat", "keypoint"),
    ],
)
@pytest.mark.parametrize("subcommand", ["match", "describe", "build", "eval"])
def test_bad_images_are_one_line_and_an_error(
    doap: Doap, tmp_path: Path, kind: str, message: str, subcommand: str
) -> None:
    if subcommand == "describe" and message == "keypoint":
        pytest.skip("features without keypoints are features")
    bad = bad_image(tmp_path, kind)
    arguments = {
        "match": ("match", LEFT, bad, "--model", "doap-tiny-128", "--max-keypoints", "50"),
        "describe": ("describe", bad, "-o", "features"),
        "build": ("data", "build", bad, "-o", "set"),
        "eval": ("eval", "warped", "sift", "--data", bad),
    }[subcommand]
    status, _, errors = doap(*arguments)
    assert status == 1
    assert errors.strip().count("\n") == 0
    assert errors.startswith("doap: ")
    assert str(bad) in errors
    assert message in errors
    assert not (tmp_path / "set").exists()
    assert not (tmp_path / "matches.png").exists()


def test_unknown_models_and_devices_are_one_line(doap: Doap) -> None:
    status, _, errors = doap("match", LEFT, RIGHT, "--model", "doap-9000")
    assert (status, errors.count("\n")) == (1, 1)
    assert "no model of this name" in errors
    status, _, errors = doap("match", LEFT, RIGHT, "--device", "abacus")
    assert (status, errors.count("\n")) == (1, 1)
    assert "device abacus" in errors


def test_figures_in_unknown_formats_are_refused(doap: Doap) -> None:
    status, _, errors = doap("match", LEFT, RIGHT, "-o", "matches.doc")
    assert status == 1
    assert "figures are written as" in errors


def test_describing_continues_after_a_bad_image(doap: Doap, tmp_path: Path) -> None:
    bad = bad_image(tmp_path, "text")
    status, shown, _ = doap("describe", LEFT, bad, "-o", "f", "--model", "doap-demo-256b", "--max-keypoints", "40")
    assert status == 0
    assert "1 of 2 images described" in shown
    assert f"skipped: {bad}: not an image" in shown
    with np.load(tmp_path / "f" / "motorcycle_left.png.npz") as archive:
        assert archive["descriptors"].shape == (40, 32)
        assert archive["descriptors"].dtype == np.uint8


def test_building_continues_after_bad_photos(doap: Doap, tmp_path: Path) -> None:
    bad = [bad_image(tmp_path, kind) for kind in ("text", "flat")]
    status, shown, _ = doap("data", "build", bad[0], STEREO / "coffee.png", bad[1], "-o", "set", "--points", 50)
    assert status == 0
    assert "200 patches of 32x32, 50 groups, 1 sequence" in shown
    assert f"skipped: {bad[0]}: not an image" in shown
    assert f"skipped: {bad[1]}: fewer than 20 distinct keypoints found" in shown


def test_photos_become_scores(doap: Doap, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("width: 2\ndimensions: 16\nbatch_size: 256\nepochs: 9\n")
    status, shown, _ = doap("data", "build", STEREO / "rocket.jpg", "-o", "set", "--points", "300")
    assert status == 0
    assert "easy views overlap the plain frame by 0.86" in shown
    status, shown, _ = doap("data", "info", "set", "--verify")
    assert "1,200 patches of 32x32, 300 groups" in shown
    assert "pairs of groups overlap in a photo" in shown
    assert "every checksum is correct" in shown
    train = ("train", "r.yaml", "--data", "set", "-o", "run", "--set", "epochs=2")
    status, shown, _ = doap(*train)
    assert status == 0
    assert "8 steps" in shown
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "recipe.yaml", "run.json", "log.csv", "validation.csv", "tensorboard", "training.png",
        "checkpoint.safetensors", "weights.safetensors", "weights.json",
    }  # fmt: skip
    status, _, errors = doap(*train)
    assert (status, "exists already" in errors) == (1, True)
    status, _, errors = doap("train", "--resume", "run")
    assert (status, "complete" in errors) == (1, True)
    (tmp_path / "run" / "weights.safetensors").unlink()
    assert doap("train", "--resume", "run")[0] == 0
    status, shown, _ = doap(
        "eval", "warped", "run/weights.safetensors", "sift", "--data", STEREO / "coffee.png",
        "--copies", 2, "--keypoints", 200, "--json", "s.json", "--figure", "s.png",
    )  # fmt: skip
    assert status == 0
    content = json.loads((tmp_path / "s.json").read_text())
    assert {s["descriptor"] for s in content["scores"]} == {"run", "sift"}
    assert len(content["scores"]) == 4
    assert (tmp_path / "s.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train",), "give a RECIPE"),
        (("train", "--resume", "nowhere"), "not a run folder"),
        (("train", "r.yaml", "--resume", "run"), "give no other option"),
        (("train", "nowhere.yaml", "--data", "set", "-o", "run"), "nowhere.yaml: cannot be read"),
        (("data", "info", "nowhere"), "not a patch set"),
    ],
)
def test_wrong_arguments_are_one_line(doap: Doap, arguments: tuple[str, ...], message: str) -> None:
    status, _, errors = doap(*arguments)
    assert (status, errors.count("\n")) == (1, 1)
    assert message in errors


def test_a_frame_set_is_built_described_and_shown(doap: Doap, tmp_path: Path) -> None:
    status, shown, _ = doap("data", "build", STEREO / "rocket.jpg", "-o", "set", "--points", "60", "--frames")
    assert status == 0
    assert "FrameSet(60 frames in 1 photo, 60 groups, 1 sequence)" in shown
    assert "summary: set/summary.html" in shown
    status, shown, _ = doap("data", "info", "set", "--verify")
    assert "frames by source: views 60, static 0, tracks 0" in shown
    assert "every checksum is correct" in shown
    assert doap("data", "show", "set", "-o", "sheet.png", "--groups", 5)[0] == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height > 5 * 64
    assert doap("data", "mine", "set", "-o", "mined.png", "--clusters", 5)[0] == 0
    assert (tmp_path / "mined.png").exists()


def test_a_lack_of_memory_is_one_line(doap: Doap, monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(*_: object) -> None:
        bytearray(1 << 62)

    monkeypatch.setattr("doap.training.recipes.reading.read_recipe", allocate)
    code, _, error = doap("train", "photos-real", "--data", "set", "-o", "run")
    assert code == 1
    assert error.startswith("doap: not enough memory; ")
    assert error.count("\n") == 1
