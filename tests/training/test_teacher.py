import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from doap import DoapError, PatchSet, describe_patches, load
from doap.networks.architecture import Architecture, build_network
from doap.networks.card import read_card
from doap.networks.descriptor import Descriptor
from doap.networks.registry import save
from doap.objectives import ImitationLoss, SimilarityLoss
from doap.training import trainer
from doap.training.batches import Batches
from doap.training.distributed import make_fabric
from doap.training.log import Status, read_losses
from doap.training.recipe import Recipe, read_recipe
from doap.training.teacher import Teacher
from doap.training.trainer import train
from doap.types import Kind

SMALL = Recipe(width=2, dimensions=16, batch_size=64, epochs=2, lr=1.0, precision="fp32")


@pytest.fixture(scope="module")
def patches() -> PatchSet:
    """80 groups of 4 noisy copies."""
    random = np.random.default_rng(0)
    groups = np.arange(320) // 4
    shapes = random.integers(0, 256, (80, 8, 8)).repeat(4, 1).repeat(4, 2)
    pixels = shapes[groups] + random.normal(0, 40, (320, 32, 32))
    return PatchSet([pixels.clip(0, 255).astype(np.uint8)], groups)


def make_teacher(path: Path, seed: int = 1, kind: Kind = "real", **words: object) -> str:
    """An untrained model with a card; even at random, a network tells patches apart."""
    torch.manual_seed(seed)
    architecture = Architecture.model_validate({"width": 4, "dimensions": 16, **words})
    network = build_network(architecture)
    size = network.input_size
    with torch.no_grad():
        for _ in range(40):  # statistics for batch normalisation
            network(torch.rand(16, 1, 8, 8).repeat_interleave(size, 2).repeat_interleave(size, 3)[..., ::8, ::8] * 255)
    save(Descriptor(network, kind, 12.0, "teacher"), path, architecture)
    return str(path)


@pytest.mark.parametrize("chunk", [None, 24])
def test_the_loss_is_the_objectives_and_the_teachers(chunk: int | None, patches: PatchSet, tmp_path: Path) -> None:
    teacher = make_teacher(tmp_path / "t.safetensors")
    alone = SMALL.model_copy(update={"chunk": chunk, "dropout": 0.0})
    recipe = alone.model_copy(update={"teacher": teacher, "distillation_weight": 3.0})
    train(alone, patches, tmp_path / "alone")
    train(recipe, patches, tmp_path / "taught")
    batch = next(Batches(patches, recipe, "cpu", 32).draw(0))
    torch.manual_seed(recipe.seed)
    student = build_network(recipe.architecture).train()
    inputs = batch.pixels[:, None].float()
    parts = torch.tensor_split(inputs, 3) if chunk else (inputs,)
    with torch.no_grad():
        outputs = torch.cat([student(part) for part in parts])
        taught = load(teacher).network(inputs)
    expected = read_losses(tmp_path / "alone")[0] + 3 * float(ImitationLoss("real")(outputs, taught))
    assert read_losses(tmp_path / "taught")[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "teacher_kind", "dimensions", "distillation_weight"),
    [
        ("real", "real", 16, 10.0),
        ("binary", "binary", 16, 10.0),
        ("real", "real", 24, 100.0),
        ("binary", "real", 24, 100.0),
    ],
)
def test_a_student_comes_to_see_patches_as_its_teacher_does(
    kind: Kind, teacher_kind: Kind, dimensions: int, distillation_weight: float, patches: PatchSet, tmp_path: Path
) -> None:
    """One of its kind and dimensions imitates the teacher; any other, its similarities."""
    teacher = make_teacher(tmp_path / "t.safetensors", kind=teacher_kind, dimensions=dimensions)
    alone = SMALL.model_copy(update={"kind": kind, "width": 4, "epochs": 12, "lr": 0.1})
    models = [
        train(alone.model_copy(update=settings), patches, tmp_path / name)
        for name, settings in {"alone": {}, "taught": {"teacher": teacher, "distillation_weight": distillation_weight}}.items()
    ]
    pixels = torch.from_numpy(patches.take(range(160)))
    taught = load(teacher).network(pixels[:, None].float())
    compare = ImitationLoss(kind) if dimensions == 16 else SimilarityLoss(kind, teacher_kind)
    with torch.no_grad():
        alone_far, taught_far = (float(compare(model.network(pixels[:, None].float()), taught)) for model in models)
    assert taught_far < 0.85 * alone_far


def test_a_teacher_describes_as_the_model_itself_whatever_it_reads(patches: PatchSet, tmp_path: Path) -> None:
    path = make_teacher(tmp_path / "t.safetensors", transformer=True)
    pixels = patches.take(range(150))
    found = Teacher(path, SMALL, make_fabric(SMALL, "cpu", 1)).describe(torch.from_numpy(pixels))
    assert not found.requires_grad
    unit = torch.nn.functional.normalize(found, dim=1).numpy()
    np.testing.assert_allclose(unit, describe_patches(pixels, load(path)), atol=1e-4)


def test_the_teacher_stands_in_the_record_and_on_the_card(patches: PatchSet, tmp_path: Path) -> None:
    teacher = make_teacher(tmp_path / "t.safetensors")
    before = Path(teacher).read_bytes()
    train(SMALL.model_copy(update={"teacher": teacher}), patches, tmp_path / "run")
    expected = {"model": teacher, "sha256": hashlib.sha256(before).hexdigest()}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["teacher"] == expected
    card = read_card(tmp_path / "run" / "weights.safetensors")
    assert card.origin.notes["teacher"] == expected
    assert card.origin.recipe["teacher"] == teacher
    assert Path(teacher).read_bytes() == before
    train(SMALL, patches, tmp_path / "alone")
    assert json.loads((tmp_path / "alone" / "run.json").read_text())["teacher"] is None


def test_a_run_goes_on_with_the_same_teacher_only(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.safetensors"
    recipe = SMALL.model_copy(update={"teacher": make_teacher(path)})
    whole = train(recipe, patches, tmp_path / "whole").network.state_dict()
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)

    def stop(status: Status) -> None:
        if not status.doing and status.done > 0.6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe, patches, tmp_path / "stopped", progress=stop)
    make_teacher(path, seed=2)
    with pytest.raises(DoapError, match=r"stopped: its teacher .*t\.safetensors has other weights now") as caught:
        train(recipe, patches, tmp_path / "stopped")
    assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(DoapError, match=r"teacher=.*t\.safetensors: no such file"):
        train(recipe, patches, tmp_path / "stopped")
    make_teacher(path)
    again = train(recipe, patches, tmp_path / "stopped").network.state_dict()
    assert all(torch.equal(again[name], value) for name, value in whole.items())


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        ("nowhere.safetensors", "teacher=nowhere.safetensors: no such file"),
        ("rootsift", "teacher=rootsift: handcrafted"),
        ("damaged.safetensors", "teacher=damaged.safetensors: its SHA-256 differs"),
    ],
)
def test_teachers_that_are_none_are_refused_in_one_line(
    teacher: str, message: str, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_teacher(Path("damaged.safetensors"))
    Path("damaged.safetensors").write_bytes(b"something else")
    with pytest.raises(DoapError, match=message) as caught:
        train(SMALL.model_copy(update={"teacher": teacher}), patches, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_recipe_remembers_where_its_teacher_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_teacher(Path("t.safetensors"))
    Path("recipe.yaml").write_text("teacher: t.safetensors\n")
    assert read_recipe("recipe.yaml").teacher == str(tmp_path / "t.safetensors")
    assert read_recipe("recipe.yaml", ["teacher=doap-demo-128"]).teacher == "doap-demo-128"
    assert read_recipe("recipe.yaml", ["teacher=null"]).teacher is None
