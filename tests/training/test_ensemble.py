"""Several teachers, and teachers of another extent."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from doap import DoapError, FrameSet, PatchSet, describe_patches, load
from doap.datasets.batches import resident_frames
from doap.images.extraction import extract_patches
from doap.networks.architecture import build_network
from doap.networks.card import read_card
from doap.objectives import SimilarityLoss
from doap.training import trainer
from doap.training.batches import BatchLoader, PatchBatch, TeacherInput
from doap.training.distributed import make_fabric
from doap.training.log import read_losses
from doap.training.teacher import Teacher
from doap.training.trainer import train
from doap.types import Grey
from support.small_models import make_teacher
from support.trainings import SMALL, stop_after

RECIPE = SMALL.model_copy(update={"batch_size": 64, "epochs": 1, "dropout": 0.0})
FRAMES = RECIPE.model_copy(update={"views_per_group": 2})


@pytest.fixture
def members(tmp_path: Path) -> list[str]:
    """Teachers of different kinds, dimensions and input sizes."""
    return [
        make_teacher(tmp_path / "real.safetensors", dimensions=16),
        make_teacher(tmp_path / "bits.safetensors", seed=2, kind="binary", dimensions=32),
        make_teacher(tmp_path / "wide.safetensors", seed=3, network="cs-l2net", width=2, dimensions=8),
    ]


def ensemble(members: list[str]) -> Teacher:
    return Teacher(RECIPE.model_copy(update={"teacher": members}), make_fabric(RECIPE, "cpu", 1))


def similarities(path: str, pixels: np.ndarray) -> np.ndarray:
    """Return the similarities of all pairs of patches by a model."""
    model = load(path, fast=False)
    descriptors = describe_patches(pixels, model)
    if model.kind == "binary":
        signs = 2.0 * np.unpackbits(descriptors, axis=1) - 1
        return np.asarray(signs @ signs.T / signs.shape[1])
    return np.asarray(descriptors @ descriptors.T)


def test_the_similarity_of_an_ensemble_is_the_mean_of_its_members(members: list[str], noise: PatchSet) -> None:
    pixels = noise.take(range(40))
    outputs = ensemble(members).describe([torch.from_numpy(pixels)] * 3)
    assert outputs.shape == (40, 16 + 32 + 8)
    unit = torch.nn.functional.normalize(outputs, dim=1)
    expected = np.mean([similarities(path, pixels) for path in members], axis=0)
    np.testing.assert_allclose((unit @ unit.T).numpy(), expected, atol=1e-4)


def test_a_student_imitates_similarities_of_an_ensemble_even_of_its_own_dimensions(
    noise: PatchSet, tmp_path: Path
) -> None:
    members = [make_teacher(tmp_path / f"{seed}.safetensors", seed, dimensions=8) for seed in (1, 2)]
    recipe = RECIPE.model_copy(update={"teacher": members, "distillation_weight": 3.0})
    train(RECIPE, noise, tmp_path / "alone")
    train(recipe, noise, tmp_path / "taught")
    batch = next(BatchLoader(noise, recipe, "cpu", 32).batches(0))
    torch.manual_seed(recipe.seed)
    student = build_network(recipe.architecture).train()
    outputs = student(batch.pixels[:, None].float()).detach()
    targets = ensemble(members).describe([batch.pixels] * 2)
    assert targets.shape == outputs.shape
    expected = read_losses(tmp_path / "alone")[0] + 3 * float(SimilarityLoss("real", "real")(outputs, targets))
    assert read_losses(tmp_path / "taught")[0] == pytest.approx(expected, abs=1e-5)


def test_all_teachers_are_recorded_and_checked_when_a_run_resumes(
    noise: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [make_teacher(tmp_path / f"{seed}.safetensors", seed) for seed in (1, 2)]
    recipe = RECIPE.model_copy(update={"teacher": members, "epochs": 2})
    identities = [{"model": m, "sha256": hashlib.sha256(Path(m).read_bytes()).hexdigest()} for m in members]
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, noise, tmp_path / "run", progress=stop_after(0.6))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["teacher"] == identities
    make_teacher(Path(members[1]), seed=3)
    with pytest.raises(DoapError, match=r"the weights of its teacher .*1\.safetensors, .*2\.safetensors have changed"):
        train(recipe, noise, tmp_path / "run")
    make_teacher(Path(members[1]), seed=2)
    train(recipe, noise, tmp_path / "run")
    card = read_card(tmp_path / "run" / "weights.safetensors")
    assert card.origin.notes["teacher"] == identities
    assert card.origin.recipe["teacher"] == members


def test_every_member_must_be_a_model_with_weights(noise: PatchSet, tmp_path: Path) -> None:
    for member, message in (("rootsift", "teacher=rootsift: handcrafted"), ("none", "teacher=none: no such file")):
        with pytest.raises(DoapError, match=message):
            train(RECIPE.model_copy(update={"teacher": ["doap-demo-128", member]}), noise, tmp_path / "run")


def centre(patches: Tensor) -> Tensor:
    """Return the central half of (m, 64, 64) patches."""
    return patches[:, 16:48, 16:48]


@pytest.mark.parametrize("settings", [{}, {"zoom": 1.5}, {"augment": True}, {"extent": 9.0, "jitter": 2.0}])
def test_a_teacher_of_twice_the_extent_sees_the_surround_of_the_students_patches(
    settings: dict[str, object], frames: FrameSet
) -> None:
    recipe = FRAMES.model_copy(update={**settings, "blur": 0.0})
    extent = recipe.extent or frames.extent
    inputs = [TeacherInput(64, 2 * extent), TeacherInput(64, extent)]
    plain: PatchBatch = next(BatchLoader(frames, recipe, "cpu", 32).batches(0))
    batch = next(BatchLoader(frames, recipe, "cpu", 32, teachers=inputs).batches(0))
    assert torch.equal(batch.pixels, plain.pixels)  # the student's are the same with any teacher
    wide, same = batch.teacher_pixels
    assert same is batch.pixels
    assert wide.shape == (64, 64, 64)
    pairs = torch.stack([centre(wide).flatten(1), batch.pixels.flatten(1)], 1).float()
    correlations = torch.stack([torch.corrcoef(pair)[0, 1] for pair in pairs])
    assert correlations.median() > 0.98  # apart from light and noise
    assert correlations.quantile(0.1) > 0.8


def test_a_teacher_reads_what_extraction_gives_at_its_extent(
    frames: FrameSet, photo: Grey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident_frames, "MAX_LEVEL", dict.fromkeys(resident_frames.MAX_LEVEL, 0))
    loader = BatchLoader(frames, FRAMES, "cpu", 32, teachers=[TeacherInput(42, 20.0)])
    indices, batch = loader.indices(0, 0), next(loader.batches(0))
    (wide,) = batch.teacher_pixels
    halves = [photo[:, :256], photo[:, 256:]]
    for row, index in enumerate(indices[:20]):
        expected = extract_patches(halves[frames.photos[index]], frames.frames[index : index + 1], 42, 20.0)
        assert np.abs(wide[row].numpy().astype(int) - expected[0]).max() <= 1


def test_teachers_of_a_patch_set_read_its_patches(noise: PatchSet) -> None:
    batch = next(BatchLoader(noise, RECIPE, "cpu", 32, teachers=[TeacherInput(64, 24.0)]).batches(0))
    assert batch.teacher_pixels[0] is batch.pixels
