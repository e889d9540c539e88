import hashlib
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from doap.datasets.sets.frame_set import FrameSet, encode
from doap.datasets.tilted.tilted_set import TiltedSet, make_tilted_set
from doap.datasets.tilted.views import TiltSettings
from doap.errors import DoapError
from doap.networks.architecture import Architecture, build_network
from doap.networks.baselines.tfeat import TFeat
from doap.networks.card import DataSource, Origin, TrainingSet, read_card
from doap.networks.descriptor import Descriptor
from doap.networks.frames import FrameSettings
from doap.networks.frames.loading import load_frame_network, read_frame_card
from doap.networks.registry import load, save
from doap.training.frames.batches import TiltedBatches, align_vertical
from doap.training.frames.losses import covariance_loss, inverse
from doap.training.frames.recipe import FrameRecipe, read_settings
from doap.training.frames.trainer import FrameTrainer, train_frames
from doap.types import Grey

SMALL = FrameRecipe(
    network=FrameSettings(width=4),
    descriptor="doap-tiny-128",
    batch_size=48,
    points_per_photo=12,
    steps=4,
    warm_up=0.5,
    joint=0.25,
)


@pytest.fixture(scope="module")
def tilted(photo: Grey) -> TiltedSet:
    photos = [encode(np.ascontiguousarray(image)) for image in (photo[:300, :400], photo[200:, 100:])]
    ids = np.arange(2)
    frames = np.tile(np.array([[[1, 0, 9], [0, 1, 9]]], np.float32), (2, 1, 1))
    data = FrameSet(photos, ["a.png", "b.png"], ids, frames, ids, ids, np.zeros(2, np.int64))
    return make_tilted_set(data, TiltSettings(views=2, max_tilt=4.0, keypoints=300, max_side=256), workers=1)


def test_the_loss_is_zero_for_covariant_frames_and_only_for_them() -> None:
    shapes = torch.randn(10, 2, 2, dtype=torch.float64) + 2 * torch.eye(2)
    shapes[shapes.det() < 0] *= torch.tensor([[1.0], [-1.0]])
    pairs = shapes.repeat_interleave(2, 0)
    assert float(covariance_loss(pairs)) == pytest.approx(0, abs=1e-12)
    first, second = torch.eye(2, dtype=torch.float64), 2 * torch.eye(2, dtype=torch.float64)
    # E = 2 I, so that |E|² = 8 and |E⁻¹|² = 1/2.
    assert float(covariance_loss(torch.stack([first, second]))) == pytest.approx(np.log(3.25))
    turned = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)  # by 90 degrees
    assert float(covariance_loss(torch.stack([first, turned]))) == pytest.approx(0.5)
    torch.testing.assert_close(inverse(shapes), torch.linalg.inv(shapes))
    torch.testing.assert_close(covariance_loss(torch.flip(pairs, [0])), covariance_loss(pairs))
    noisy = (pairs + 0.1 * torch.randn_like(pairs)).requires_grad_()
    assert torch.autograd.gradcheck(covariance_loss, noisy)


def test_batches_hold_two_views_of_each_point(tilted: TiltedSet) -> None:
    batch = next(TiltedBatches(tilted, SMALL, "cpu").batches())
    assert len(batch.frames) == 48
    assert torch.equal(batch.groups[::2], batch.groups[1::2])
    assert len(torch.unique(batch.groups)) == 24
    assert (batch.photos[::2] != batch.photos[1::2]).all()


def test_vertical_axes_show_one_direction_of_the_photo(tilted: TiltedSet) -> None:
    batch = next(TiltedBatches(tilted, SMALL, "cpu").batches())
    frames = align_vertical(batch.frames, batch.jacobians, torch.Generator().manual_seed(0))
    shapes, before = frames[:, :, :2], batch.frames[:, :, :2]
    torch.testing.assert_close(shapes @ shapes.mT, before @ before.mT, atol=1e-3, rtol=1e-3)
    axes = torch.nn.functional.normalize((batch.jacobians @ shapes)[:, :, 1], dim=1)
    torch.testing.assert_close(axes[::2], axes[1::2], atol=1e-3, rtol=1e-3)


def test_gradients_reach_the_network_from_both_losses(tilted: TiltedSet) -> None:
    trainer = FrameTrainer(SMALL, tilted)
    batch = next(trainer.batches.batches())
    for recipe in (SMALL.model_copy(update={"covariance_weight": 0.0}), SMALL):
        trainer.recipe = recipe
        for fraction in (0.0, 0.6):
            losses = trainer._step(fraction, batch)
            assert losses.isfinite().all()
            assert (losses[0] > 0) == (fraction > 0.5)
            gradient = trainer.network.prediction.weight.grad
            assert gradient is not None
            assert gradient.abs().max() > 0


def test_a_run_leaves_a_network_that_can_be_loaded(tilted: TiltedSet, tmp_path: Path) -> None:
    run = tmp_path / "run"
    network = train_frames(SMALL, tilted, run, "small", Origin(data="photos"))
    loaded = load_frame_network(str(run / "weights.safetensors"))
    patches = 255 * torch.rand(4, 1, 32, 32)
    torch.testing.assert_close(loaded(patches), network(patches))
    assert len((run / "log.csv").read_text().splitlines()) == 1 + SMALL.steps
    joint, frozen = load(run / "descriptor.safetensors", fast=False), load("doap-tiny-128", fast=False)
    assert any(not torch.equal(a, b) for a, b in zip(joint.parameters(), frozen.parameters(), strict=True))
    with pytest.raises(DoapError, match="exists already"):
        train_frames(SMALL, tilted, run, "small", Origin())


def test_a_tuned_descriptor_inherits_the_provenance_of_its_base(tilted: TiltedSet, tmp_path: Path) -> None:
    architecture = Architecture(network="tiny", dimensions=16, width=8)
    model = Descriptor(build_network(architecture), "real", 12.0, "base", {"dog": 20.0}, prefixes=[8])
    seen = TrainingSet(path="hpatches", layout="hpatches", sequences=["i_one"])
    own = TrainingSet(path="tilted")
    base_origin = Origin(
        licence="MIT",
        data="patches",
        training_sets=[seen],
        sources=[DataSource(source="a", licence="CC0", photos=3)],
        figures={"AP %": 80.0},
        notes={"command": "doap train", "limits": "photographs only"},
    )
    base, run = tmp_path / "base.safetensors", tmp_path / "run"
    save(model, base, architecture, base_origin)
    recipe = SMALL.model_copy(update={"descriptor": str(base), "joint": 1.0})
    train_frames(recipe, tilted, run, "tuned", Origin(data="photos", training_sets=[own]))
    card = read_card(run / "descriptor.safetensors")
    assert (card.name, card.prefixes, card.extent, card.extents) == ("tuned", [], 12.0, {"dog": 20.0})
    identity = {"model": str(base), "sha256": hashlib.sha256(base.read_bytes()).hexdigest()}
    assert card.origin == Origin(
        licence="MIT",
        data="patches; photos",
        training_sets=[own, seen],
        sources=base_origin.sources,
        recipe=recipe.model_dump(),
        notes={"limits": "photographs only", "initial_weights": identity},
    )
    assert read_frame_card(str(run / "weights.safetensors")).origin.training_sets == [own]


@pytest.mark.parametrize("descriptor", ["sift", "mkd"])
def test_handcrafted_descriptors_are_refused(descriptor: str, tilted: TiltedSet, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=f"^descriptor={descriptor}: handcrafted, it has no weights") as raised:
        train_frames(SMALL.model_copy(update={"descriptor": descriptor}), tilted, tmp_path / "run", "run", Origin())
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_a_descriptor_without_a_card_is_not_tuned(tilted: TiltedSet, tmp_path: Path) -> None:
    file = tmp_path / "tfeat.safetensors"
    safetensors.torch.save_file(TFeat().state_dict(), file)
    with pytest.raises(DoapError, match=r"has no card, which joint=0\.25 needs"):
        FrameTrainer(SMALL.model_copy(update={"descriptor": str(file)}), tilted)
    assert FrameTrainer(SMALL.model_copy(update={"descriptor": str(file), "joint": 0.0}), tilted).base_card is None


def test_the_baseline_is_trained_by_its_own_loss(tilted: TiltedSet, tmp_path: Path) -> None:
    network = FrameSettings(width=4, corrections="shape")
    recipe = SMALL.model_copy(update={"objective": "affnet", "network": network, "warm_up": 0.0, "joint": 0.0})
    trained = train_frames(recipe, tilted, tmp_path / "run", "affnet", Origin())
    corrections = trained(255 * torch.rand(8, 1, 32, 32))
    assert (corrections[:, 0, 1] == 0).all()
    torch.testing.assert_close(corrections.det(), torch.ones(8), atol=1e-4, rtol=1e-4)


def test_time_limits_end_the_schedule(tilted: TiltedSet, tmp_path: Path) -> None:
    recipe = SMALL.model_copy(update={"steps": 10**6, "max_minutes": 0.01, "joint": 0.0})
    train_frames(recipe, tilted, tmp_path / "run", "short", Origin())
    assert (tmp_path / "run" / "weights.safetensors").exists()


def test_settings() -> None:
    recipe = read_settings(["steps=7", "network.passes=1", "objective=affnet"])
    assert (recipe.steps, recipe.network.passes, recipe.objective) == (7, 1, "affnet")
    for setting, message in (("steps", "key=value"), ("stesp=3", "stesp"), ("network.extent=-1", "network.extent")):
        with pytest.raises(DoapError, match=message):
            read_settings([setting])


def test_settings_of_the_network_can_be_one_mapping() -> None:
    network = read_settings(["network.width=8", "network={width: 4, passes: 2}", "network.extent=6"]).network
    assert network == FrameSettings(width=4, passes=2, extent=6)
    assert read_settings(["network={width: 4}", "network.width=8"]).network.width == 8
    for setting, message in (
        ("network=3", "--set network: not a mapping"),
        ("network=", "--set network: not a mapping"),
        ("network=[width, 4]", "--set network: not a mapping"),
        ("network={widht: 4}", r"--set network\.widht: Extra"),
        ("network={3: 4}", r"--set network\.3"),
    ):
        with pytest.raises(DoapError, match=message) as raised:
            read_settings([setting])
        assert "\n" not in str(raised.value)


def test_a_batch_that_the_photos_do_not_fill_is_one_line_before_they_are_decoded(
    tilted: TiltedSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TiltedBatches, "_start_views", lambda *_: pytest.fail("the views are decoded"))
    for settings, message in (
        ({"batch_size": 4096, "points_per_photo": 2000}, "0 photos of the set have 2000 points, but a batch takes 1"),
        ({"batch_size": 72, "points_per_photo": 12}, "2 photos of the set have 12 points, but a batch takes 3"),
    ):
        with pytest.raises(DoapError, match=f"^{message}; lower points_per_photo or batch_size$"):
            TiltedBatches(tilted, SMALL.model_copy(update=settings), "cpu")
