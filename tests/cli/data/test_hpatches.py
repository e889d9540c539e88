import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from doap.datasets.official.hpatches import STRIPS, read_strip
from support.command_line import Doap
from support.sets.small_pairs import write_sequence


@pytest.fixture
def sequences(tmp_path: Path) -> Path:
    """Return a folder with two good sequences, one with a damaged image, and an empty one; beside it a flat one."""
    folder = tmp_path / "sequences"
    for seed, name in enumerate(("v_one", "v_two", "v_torn")):
        write_sequence(folder / name, seed)
    (folder / "v_torn" / "img3.png").write_bytes(b"torn")
    (folder / "v_lost").mkdir()
    write_sequence(tmp_path / "flat", 0)
    for image in (tmp_path / "flat").glob("*.png"):
        Image.fromarray(np.full((64, 64), 9, np.uint8)).save(image)
    return folder


@pytest.mark.usefixtures("sequences")
def test_folders_are_made_and_an_interrupted_run_continues(doap: Doap) -> None:
    options = ("-o", "made", "--points", 20)
    status, output, _ = doap("data", "hpatches", "sequences", "flat", *options)
    assert status == 0
    assert "2 sequences, 40 patches per strip in total" in output
    assert output.count("skipped:") == 3
    for error in ("v_torn/img3.png: ", "v_lost: ", "flat: no frame found"):
        assert f"skipped: {error}" in output or f"/{error}" in output
    strips = {name: read_strip(Path("made/v_one") / f"{name}.png") for name in STRIPS}
    assert {patches.shape for patches in strips.values()} == {(20, 65, 65)}
    assert sorted(p.name for p in Path("made").iterdir()) == ["made.json", "v_one", "v_two"]

    # As if interrupted before the first: the same patches are made again, the other folder is not changed.
    shutil.rmtree("made/v_one")
    untouched = Path("made/v_two/ref.png").stat().st_mtime_ns
    assert "1 sequence, 20 patches" in doap("data", "hpatches", "sequences", *options)[1]
    assert all((read_strip(Path("made/v_one") / f"{n}.png") == patches).all() for n, patches in strips.items())
    assert Path("made/v_two/ref.png").stat().st_mtime_ns == untouched

    _, _, error = doap("data", "hpatches", "sequences/v_one", "sequences/v_two", *options)
    assert error == "doap: made: exists already and has all sequences; remove it or choose another name\n"


@pytest.mark.usefixtures("sequences")
def test_a_sequence_may_have_folders_in_it(doap: Doap) -> None:
    Path("sequences/v_one/thumbnails").mkdir()
    status, output, _ = doap("data", "hpatches", "sequences/v_one", "-o", "made", "--points", 20)
    assert (status, "made/v_one: 20 patches per strip" in output) == (0, True)
    assert "skipped:" not in output


@pytest.mark.usefixtures("sequences")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sequences", "-o", "made", "--seed", 5), "made: was started with other settings"),
        (("sequences", "-o", "flat"), "flat: exists already"),
        (("sequences", "sequences/v_one", "-o", "new"), "named v_one too"),
        (("nowhere", "-o", "new"), "nowhere: no such folder"),
    ],
)
def test_an_error_is_one_line(doap: Doap, arguments: tuple[object, ...], message: str) -> None:
    Path("made").mkdir()
    Path("made/made.json").write_text('{"points": 1500, "seed": 0}')
    status, _, error = doap("data", "hpatches", *arguments)
    assert (status, error.count("\n")) == (1, 1)
    assert message in error
    assert not Path("new").exists()


def test_other_noise_than_that_of_the_folder_is_named(doap: Doap, tmp_path: Path) -> None:
    write_sequence(tmp_path / "v_one", 0)
    Path("made").mkdir()
    for noise, stored, other in (
        ("measured", '{"points": 20, "seed": 0}', '{"points": 20, "seed": 0, "noise": "measured"}'),
        ("overlap", '{"points": 20, "seed": 0, "noise": "measured"}', '{"points": 20, "seed": 0}'),
    ):
        Path("made/made.json").write_text(stored)
        status, _, error = doap("data", "hpatches", "v_one", "-o", "made", "--points", 20, "--noise", noise)
        assert (status, error.count("\n")) == (1, 1)
        assert f"made: was started with other settings, {stored}, not {other}; use them" in error
