import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from doap import DoapError, PatchSet, describe_patches, load
from doap.networks.architecture import build_network
from doap.networks.card import TrainingSet, read_card, write_card
from doap.networks.descriptor import Descriptor
from doap.objectives import ImitationLoss, SimilarityLoss
from doap.training import trainer
from doap.training.batches import BatchLoader
from doap.training.distributed import make_fabric
from doap.training.log import read_losses
from doap.training.recipes.reading import read_recipe
from doap.training.teacher import Teacher
from doap.training.trainer import train
from doap.types import Kind
from support.small_models import make_teacher
from support.trainings import SMALL, same_weights, stop_after

RECIPE = SMALL.model_copy(update={"batch_size": 64})


@pytest.fixture(scope="module")
def patches() -> PatchSet:
    """80 groups of 4 noisy copies."""
    random = np.random.default_rng(0)
    groups = np.arange(320) // 4
    shapes = random.integers(0, 256, (80, 8, 8)).repeat(4, 1).repeat(4, 2)
    pixels = shapes[groups] + random.normal(0, 40, (320, 32, 32))
    return PatchSet([pixels.clip(0, 255).astype(np.uint8)], groups)


def teacher_of(*models: str) -> Teacher:
    return Teacher(RECIPE.model_copy(update={"teacher": list(models)}), make_fabric(RECIPE, "cpu", 1))


def test_a_student_has_seen_what_its_teachers_have(patches: PatchSet, tmp_path: Path) -> None:
    hpatches = TrainingSet(path="hpatches", layout="hpatches", split="a", sequences=["i_one"])
    teachers = [make_teacher(tmp_path / f"{name}.safetensors") for name in "ab"]
    for teacher in teachers:
        card = read_card(Path(teacher))
        origin = card.origin.model_copy(update={"training_sets": [hpatches]})
        write_card(Path(teacher), card.model_copy(update={"origin": origin}))
    train(RECIPE.model_copy(update={"teacher": teachers}), patches, tmp_path / "run")
    assert read_card(tmp_path / "run" / "weights.safetensors").origin.training_sets.count(hpatches) == 1


@pytest.mark.parametrize("chunk", [None, 24])
def test_the_loss_is_the_objectives_and_the_teachers(chunk: int | None, patches: PatchSet, tmp_path: Path) -> None:
    teacher = make_teacher(tmp_path / "t.safetensors")
    alone = RECIPE.model_copy(update={"chunk": chunk, "dropout": 0.0})
    recipe = alone.model_copy(update={"teacher": teacher, "distillation_weight": 3.0})
    train(alone, patches, tmp_path / "alone")
    train(recipe, patches, tmp_path / "taught")
    batch = next(BatchLoader(patches, recipe, "cpu", 32).batches(0))
    torch.manual_seed(recipe.seed)
    student = build_network(recipe.architecture).train()
    inputs = batch.pixels[:, None].float()
    chunks = torch.tensor_split(inputs, 3) if chunk else (inputs,)
    with torch.no_grad():
        outputs = torch.cat([student(part) for part in chunks])
        taught = load(teacher, fast=False).network(inputs)
    expected = read_losses(tmp_path / "alone")[0] + 3 * float(ImitationLoss("real")(outputs, taught))
    assert read_losses(tmp_path / "taught")[0] == pytest.approx(expected, abs=1e-5)


LEARNER = RECIPE.model_copy(update={"width": 32, "epochs": 6, "lr": 0.3})


@pytest.fixture(scope="module")
def untaught(patches: PatchSet, tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Descriptor]:
    """A model of each kind that was trained without a teacher."""
    folder = tmp_path_factory.mktemp("untaught")
    kinds: tuple[Kind, ...] = ("real", "binary")
    return {kind: train(LEARNER.model_copy(update={"kind": kind}), patches, folder / kind) for kind in kinds}


@pytest.mark.parametrize(
    ("kind", "teacher_kind", "dimensions", "weight"),
    [
        ("real", "real", 16, 10.0),
        ("binary", "binary", 16, 10.0),
        ("real", "real", 24, 100.0),
        ("binary", "real", 24, 100.0),
    ],
)
def test_a_student_learns_from_its_teacher(
    kind: Kind,
    teacher_kind: Kind,
    dimensions: int,
    weight: float,
    untaught: dict[Kind, Descriptor],
    patches: PatchSet,
    tmp_path: Path,
) -> None:
    """A student of the same kind and dimensions imitates descriptors; any other, similarities."""
    teacher = make_teacher(tmp_path / "t.safetensors", kind=teacher_kind, dimensions=dimensions)
    recipe = LEARNER.model_copy(update={"kind": kind, "teacher": teacher, "distillation_weight": weight})
    taught = train(recipe, patches, tmp_path / "taught")
    inputs = torch.from_numpy(patches.take(range(160)))[:, None].float()
    compare = ImitationLoss(kind) if dimensions == 16 else SimilarityLoss(kind, teacher_kind)
    with torch.no_grad():
        targets = load(teacher, fast=False).network(inputs)
        before, after = (float(compare(model.network(inputs), targets)) for model in (untaught[kind], taught))
    assert after < 0.85 * before


def test_a_teacher_describes_as_the_model_itself_whatever_its_input_size(patches: PatchSet, tmp_path: Path) -> None:
    path = make_teacher(tmp_path / "t.safetensors", transformer=True)
    pixels = patches.take(range(150))
    outputs = teacher_of(path).describe([torch.from_numpy(pixels)])
    assert not outputs.requires_grad
    unit = torch.nn.functional.normalize(outputs, dim=1).numpy()
    np.testing.assert_allclose(unit, describe_patches(pixels, load(path, fast=False)), atol=1e-4)


def test_the_teacher_is_recorded_in_the_run_and_on_the_card(patches: PatchSet, tmp_path: Path) -> None:
    teacher = make_teacher(tmp_path / "t.safetensors")
    before = Path(teacher).read_bytes()
    train(RECIPE.model_copy(update={"teacher": teacher}), patches, tmp_path / "run")
    expected = {"model": teacher, "sha256": hashlib.sha256(before).hexdigest()}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["teacher"] == expected
    card = read_card(tmp_path / "run" / "weights.safetensors")
    assert card.origin.notes["teacher"] == expected
    assert card.origin.recipe["teacher"] == teacher
    assert Path(teacher).read_bytes() == before
    train(RECIPE, patches, tmp_path / "alone")
    assert json.loads((tmp_path / "alone" / "run.json").read_text())["teacher"] is None


def test_a_run_resumes_with_the_same_teacher_only(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.safetensors"
    recipe = RECIPE.model_copy(update={"teacher": make_teacher(path)})
    whole = train(recipe, patches, tmp_path / "whole")
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, patches, tmp_path / "stopped", progress=stop_after(0.6))
    make_teacher(path, seed=2)
    with pytest.raises(DoapError, match=r"stopped: the weights of its teacher .*t\.safetensors have changed") as caught:
        train(recipe, patches, tmp_path / "stopped")
    assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(DoapError, match=r"teacher=.*t\.safetensors: no such file"):
        train(recipe, patches, tmp_path / "stopped")
    make_teacher(path)
    assert same_weights(train(recipe, patches, tmp_path / "stopped"), whole)


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        ("nowhere.safetensors", "teacher=nowhere.safetensors: no such file"),
        ("rootsift", "teacher=rootsift: handcrafted"),
        ("damaged.safetensors", "teacher=damaged.safetensors: its SHA-256 differs"),
    ],
)
def test_invalid_teachers_are_one_line(
    teacher: str, message: str, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_teacher(Path("damaged.safetensors"))
    Path("damaged.safetensors").write_bytes(b"something else")
    with pytest.raises(DoapError, match=message) as caught:
        train(RECIPE.model_copy(update={"teacher": teacher}), patches, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_recipe_has_the_absolute_path_of_its_teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_teacher(Path("t.safetensors"))
    Path("recipe.yaml").write_text("teacher: t.safetensors\n")
    assert read_recipe("recipe.yaml").teacher == str(tmp_path / "t.safetensors")
    assert read_recipe("recipe.yaml", ["teacher=doap-demo-128"]).teacher == "doap-demo-128"
    assert read_recipe("recipe.yaml", ["teacher=null"]).teacher is None
    several = [str(tmp_path / "t.safetensors"), "doap-demo-128"]
    assert read_recipe("recipe.yaml", ["teacher=[t.safetensors, doap-demo-128]"]).teacher == several
    with pytest.raises(DoapError, match="teacher must name at least one model"):
        read_recipe("recipe.yaml", ["teacher=[]"])
