"""tools/ship.py, on a small run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import doap
import ship
from doap.networks import registry
from doap.networks.card import read_card
from doap.training.log import read_validation
from doap.training.recipes.recipe import Recipe
from doap.training.run_folder import DataSpec
from doap.training.trainer import train
from support.sets.small_frame_set import small_frame_set

RECIPE = Recipe(
    dimensions=16, width=2, batch_size=64, views_per_group=4, epochs=1, precision="fp32", seed=7, val_fraction=0.2
)
COMMAND = "doap train frames-real --data sets/train -o runs/small --set seed=7"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a set, a run on it, and the CSV file of its photos and others."""
    folder = tmp_path_factory.mktemp("trained")
    data = small_frame_set()
    data.save(folder / "train")
    train(RECIPE, data, folder / "run", "small", DataSpec([str(folder / "train")], validation=str(folder / "val")))
    rows = ["archive,file,width,height,source,licence"]
    for photo in [*data.photo_names, "set/other/1.png", "set/other/2.png"]:
        archive, file = photo.split("/", 1)
        source = "github:a/b,CC0 1.0" if "many" in file else 'debian:c,"CC BY 4.0 / CC BY-SA, see there"'
        rows.append(f"{archive},{file},240,180,{source}")
    (folder / "photos.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture
def weights_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the folder of the shipped weights by an empty one."""
    monkeypatch.setattr(registry, "WEIGHTS_FOLDER", tmp_path / "weights")
    return tmp_path / "weights"


def test_a_run_becomes_a_shipped_model_with_a_complete_card(trained: Path, weights_folder: Path) -> None:
    ship.main([str(trained / "run"), "small-16", "--photos-csv", str(trained / "photos.csv"), "--command", COMMAND])
    assert doap.list_models() == ["small-16"]
    assert doap.load("small-16").name == "small-16"
    assert (weights_folder / "small-16.safetensors").read_bytes() == (
        trained / "run" / "weights.safetensors"
    ).read_bytes()
    origin = read_card(weights_folder / "small-16.safetensors").origin
    assert origin.licence == "Apache-2.0"
    assert origin.data == f"train: {small_frame_set()!r}"
    assert [source.model_dump() for source in origin.sources] == [
        {"source": "debian:c", "licence": "CC BY 4.0 / CC BY-SA, see there", "photos": 21},
        {"source": "github:a/b", "licence": "CC0 1.0", "photos": 14},
    ]
    assert Recipe(**origin.recipe) == RECIPE
    info = json.loads((trained / "run" / "run.json").read_text())
    assert origin.notes == {
        "command": COMMAND, "seed": 7, "limits": ship.LIMITS, "device": "cpu", "devices": 1, "precision": "fp32",
        "threads": info["threads"], "versions": info["versions"], "validation": "val",
    }  # fmt: skip
    ((_, ap),) = read_validation(trained / "run")
    assert origin.figures == {"AP % on validation lists": round(100 * ap, 2)}
    assert str(trained) not in (weights_folder / "small-16.json").read_text()


def test_with_a_set_only_its_photos_are_counted(trained: Path, weights_folder: Path) -> None:
    card = ship.ship(trained / "run", "small", trained / "photos.csv", COMMAND, data=trained / "train")
    assert {source.source: source.photos for source in card.origin.sources} == {"debian:c": 19, "github:a/b": 14}
    assert (weights_folder / "small.json").exists()


def test_a_teacher_has_the_name_it_ships_under(trained: Path, weights_folder: Path, tmp_path: Path) -> None:
    weights_folder.mkdir()
    for suffix in (".safetensors", ".json"):
        shutil.copy(trained / "run" / f"weights{suffix}", weights_folder / f"big{suffix}")
    sha256 = read_card(weights_folder / "big.safetensors").sha256
    for teacher_sha256, expected in ((sha256, "big"), ("0" * 64, "best.safetensors")):
        run = tmp_path / f"taught by {expected}"
        shutil.copytree(trained / "run", run)
        info = json.loads((run / "run.json").read_text())
        info["teacher"] = {"model": "/home/me/runs/big/best.safetensors", "sha256": teacher_sha256}
        (run / "run.json").write_text(json.dumps(info))
        taught = RECIPE.model_copy(update={"teacher": "/home/me/runs/big/best.safetensors"})
        (run / "recipe.yaml").write_text(taught.to_yaml())
        origin = ship.ship(run, "taught", trained / "photos.csv", COMMAND).origin
        assert origin.recipe["teacher"] == expected
        assert origin.notes["teacher"] == {"model": expected, "sha256": teacher_sha256}


def damage(run: Path) -> None:
    (run / "weights.safetensors").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage_run", "name", "command", "table", "message"),
    [
        (lambda run: (run / "weights.json").unlink(), "a", "x", "", "not the folder of a finished run"),
        (shutil.rmtree, "a", "x", "", "not the folder of a finished run"),
        (damage, "a", "x", "", "its SHA-256 differs"),
        (lambda run: (run / "run.json").write_text("{}"), "a", "x", "", "not a run folder"),
        (None, "../a", "x", "", "must consist of lower-case letters"),
        (None, "a", "doap train --data=/tmp/set", "", "card.origin.notes.command: contains a path of this machine"),
        (None, "a", "doap train --data ~/set", "", "card.origin.notes.command: contains a path of this machine"),
        (None, "a", "x", "archive,file\na,b\n", "must have the columns archive, file, source, licence"),
        (None, "a", "x", "archive,file,source,licence\na,b,c,\n", "with a value of each in every row"),
        (None, "a", "x", "archive,file,source,licence\na,b,c,d\n", "set/many/00.png: the first of 33 photos"),
    ],
)
def test_invalid_runs_are_refused_in_one_line_and_write_nothing(
    trained: Path,
    weights_folder: Path,
    tmp_path: Path,
    damage_run: Callable[[Path], None] | None,
    name: str,
    command: str,
    table: str,
    message: str,
) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    if damage_run:
        damage_run(tmp_path / "run")
    photos = trained / "photos.csv"
    if table:
        photos = tmp_path / "photos.csv"
        photos.write_text(table)
    arguments = [str(tmp_path / "run"), name, "--photos-csv", str(photos), "--command", command]
    with pytest.raises(SystemExit) as ended:
        ship.main([*arguments, "--data", str(trained / "train")])
    assert message in str(ended.value.code)
    assert "\n" not in str(ended.value.code)
    assert not weights_folder.exists()


def test_another_set_than_the_runs_is_refused(trained: Path, weights_folder: Path, tmp_path: Path) -> None:
    data = small_frame_set()
    data.select(data.sequences < 3).save(tmp_path / "less")
    with pytest.raises(doap.DoapError, match="not the set of the run, which was FrameSet"):
        ship.ship(trained / "run", "a", trained / "photos.csv", COMMAND, data=tmp_path / "less")
    assert not weights_folder.exists()
