import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from doap import Descriptor, DoapError, FrameSet, PatchSet, describe_patches, load
from doap.datasets.label_mining.mining import MinedLabels, mine_labels
from doap.datasets.label_mining.settings import MiningSettings
from doap.evaluation.metrics.average_precision import average_precision
from doap.images.extraction import extract_patches
from doap.networks.l2net import L2Net
from doap.networks.network import PatchNetwork
from doap.training import trainer
from doap.training.batches import BatchLoader
from doap.training.log import Status, read_losses
from doap.training.objective import make_objective
from doap.training.recipes.recipe import Recipe
from doap.training.run_folder import MINED, DataSpec
from doap.training.trainer import Trainer, train
from doap.types import Grey
from support.trainings import L2NET, SMALL, same_files, same_weights, stop_after, weights_of


def test_groups_are_cut_from_photos(patches: PatchSet) -> None:
    assert patches.sequence_names == ["left", "right"]
    sizes = np.diff(patches.members_start)
    assert (sizes == 4).all()
    assert patches.labels["level"][patches.members].reshape(-1, 4).tolist() == [[0, 1, 2, 3]] * len(sizes)
    values = patches.take(patches.members).reshape(len(sizes), 4, -1).astype(float)
    values = (values - values.mean(2, keepdims=True)) / np.maximum(values.std(2, keepdims=True), 1)
    own = (values[:, 0] * values[:, 1]).mean(1)
    other = (values[:, 0] * np.roll(values[:, 1], 1, axis=0)).mean(1)
    assert np.median(own) > 0.6 > 0.3 > np.median(other)


def test_training_by_ap_raises_exact_ap_and_leaves_a_whole_run(patches: PatchSet, tmp_path: Path) -> None:
    recipe = Recipe(width=2, dimensions=32, batch_size=128, epochs=8, lr=2.0, seed=1)
    model = train(recipe, patches, tmp_path / "run", name="small", source=DataSpec(["two halves"]))
    torch.manual_seed(recipe.seed)
    untrained = L2Net(32, 2).train()
    assert mean_ap(patches, model.network.eval()) > mean_ap(patches, untrained) + 0.15
    losses = read_losses(tmp_path / "run")
    assert np.mean(losses[-3:]) < 0.5 * np.mean(losses[:3])
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["data"] == ["two halves"]
    assert info["precision"] in ("fp32", "bf16")
    assert set(info["versions"]) == {"doap", "torch", "numpy", "python"}
    again = load(tmp_path / "run" / "weights.safetensors", fast=False)
    assert (again.name, again.extent) == ("small", 12.0)
    sample = patches.take(range(50))
    np.testing.assert_allclose(describe_patches(sample, again), describe_patches(sample, model), atol=1e-5)


def mean_ap(patches: PatchSet, network: PatchNetwork) -> float:
    """Compute the exact AP by sorting, with every seventh patch as a query."""
    with torch.no_grad():
        values = network(torch.from_numpy(patches.take(range(len(patches))))[:, None].float())
    vectors = torch.nn.functional.normalize(values, dim=1).numpy()
    distances = 2 - 2 * vectors @ vectors.T
    precisions = []
    for query in range(0, len(patches), 7):
        others = np.arange(len(patches)) != query
        correct = patches.groups[others] == patches.groups[query]
        precisions.append(average_precision(distances[query, others], correct))
    return float(np.mean(precisions))


@pytest.mark.parametrize("settings", [{**L2NET, "epochs": 1}, {"kind": "binary"}], ids=["real", "binary"])
def test_one_seed_fixes_a_run(settings: dict[str, Any], patches: PatchSet, tmp_path: Path) -> None:
    recipe = SMALL.model_copy(update=settings)
    first, second = (train(recipe, patches, tmp_path / name) for name in "ab")
    other = train(recipe.model_copy(update={"seed": 9}), patches, tmp_path / "c")
    assert same_weights(first, second)
    assert not torch.equal(weights_of(first)["layers.0.weight"], weights_of(other)["layers.0.weight"])


def test_the_learning_rate_falls_linearly_to_zero(reference: Path) -> None:
    rows = (reference / "log.csv").read_text().split()[1:]
    rates = [float(row.split(",")[3]) for row in rows]
    expected = SMALL.initial_lr() * (1 - np.arange(len(rates)) / len(rates))
    np.testing.assert_allclose(rates, expected, rtol=1e-4)


def failing_at(call: int, value: float) -> Callable[[Recipe, int], Callable[..., torch.Tensor]]:
    """Return a `make_objective` whose loss is multiplied by a value at one call."""
    calls = 0

    def make(recipe: Recipe, ranks: int) -> Callable[..., torch.Tensor]:
        objective = make_objective(recipe, ranks)

        def loss(*arguments: Any) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return objective(*arguments) * (value if calls == call else 1)

        return loss

    return make


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_weights(
    reference: Path, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    with monkeypatch.context() as patched:
        patched.setattr(trainer, "make_objective", failing_at(4, float("nan")))
        with pytest.raises(DoapError, match=r"the loss is nan at batch 3 of epoch 0 .*last good weights") as caught:
            train(SMALL, patches, run)
    assert "\n" not in str(caught.value)
    failure = json.loads((run / "failure.json").read_text())
    expected = BatchLoader(patches, SMALL, "cpu", 32).indices(0, 3)
    assert (failure["epoch"], failure["batch"], failure["items"]) == (0, 3, expected.tolist())
    last_good = load(run / "last-good.safetensors", fast=False).network.state_dict()
    third_step = load_file(run / "checkpoint.safetensors")
    assert all(torch.equal(value, third_step[f"network.{name}"]) for name, value in last_good.items())
    again = train(SMALL, patches, run)
    assert not {"failure.json", "last-good.safetensors", "last-good.json"} & {path.name for path in run.iterdir()}
    assert same_weights(again, reference)


def test_weights_that_are_not_finite_stop_the_run(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gradient may overflow while its loss is still finite."""
    step = torch.optim.SGD.step

    def overflow(self: torch.optim.SGD, *arguments: Any) -> None:
        self.param_groups[0]["params"][0].grad.fill_(torch.inf)
        step(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", overflow)
    with pytest.raises(DoapError, match="the weights are not finite at batch 0 of epoch 0"):
        train(SMALL, patches, tmp_path / "run")
    last_good = load(tmp_path / "run" / "last-good.safetensors", fast=False).network.state_dict()
    assert all(torch.isfinite(value).all() for value in last_good.values())


def test_statistics_that_are_not_finite_stop_the_run(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch normalisation trains on with an infinite running variance, but its weights could not be loaded."""
    step = Trainer.step

    def overflow(self: Trainer, *arguments: Any) -> torch.Tensor:
        loss = step(self, *arguments)
        next(self.network.buffers()).fill_(torch.inf)
        return loss

    monkeypatch.setattr(Trainer, "step", overflow)
    with pytest.raises(DoapError, match="the weights are not finite at batch 0 of epoch 0"):
        train(SMALL, patches, tmp_path / "run")


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "hardnet", "views_per_group": 2, "epochs": 10},
        {"objective": "hardnet-gor", "views_per_group": 2, "epochs": 10},
        {"objective": "sosnet", "views_per_group": 2, "epochs": 6},
        {"objective": "hynet", "views_per_group": 2, "epochs": 6},
        {"objective": "fastap"},
        {"objective": "smooth-ap"},
        {"objective": "triplet", "views_per_group": 2, "epochs": 6},
        {"objective": "triplet-gor", "views_per_group": 2, "epochs": 6},
        {"kind": "binary", "pooled_weight": 1.0, "epochs": 6},
        {"network": "l2net", "width": 2, "epochs": 2},
        {"network": "cs-l2net", "width": 2, "epochs": 2},
        {"network": "hynet", "width": 2, "epochs": 2},
        {"network": "residual", "width": 2, "epochs": 2},
        {"transformer": True, "augment": True, "epochs": 3},
        {"label_mining": True, "sampling": "sequence-pairs", "epochs": 8},  # one batch per epoch
        {"precision": "bf16"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_every_kind_of_training_learns(patches: PatchSet, tmp_path: Path, settings: dict[str, Any]) -> None:
    recipe = SMALL.model_copy(update={"epochs": 4, **settings})
    model = train(recipe, patches, tmp_path / "run")
    losses = read_losses(tmp_path / "run")
    assert np.mean(losses[-4:]) < 0.93 * np.mean(losses[:4])
    assert load(tmp_path / "run" / "weights.safetensors", fast=False).input_size == model.input_size


@pytest.mark.parametrize("chunk", [None, 40])
def test_training_by_feature_maps_raises_exact_ap(patches: PatchSet, tmp_path: Path, chunk: int | None) -> None:
    """The maps of the first layer, which differ from batch to batch, dominate the value of L2-Net's loss."""
    recipe = SMALL.model_copy(update={"objective": "l2net", "views_per_group": 2, "epochs": 10, "chunk": chunk})
    untrained = train(recipe.model_copy(update={"epochs": 1, "lr": 1e-9}), patches, tmp_path / "untrained")
    model = train(recipe, patches, tmp_path / "run")
    assert mean_ap(patches, model.network) > mean_ap(patches, untrained.network) + 0.1


@pytest.mark.parametrize(("settings", "divisor"), [({}, 100), ({"transformer_lr_divisor": 2000}, 2000)])
def test_the_prediction_layer_of_the_transformer_has_a_lower_learning_rate(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, float], divisor: float
) -> None:
    rates = []
    step = torch.optim.SGD.step

    def record(self: torch.optim.SGD, *arguments: Any) -> None:
        rates.append([group["lr"] for group in self.param_groups])
        step(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", record)
    train(SMALL.model_copy(update={"transformer": True, "epochs": 1, **settings}), patches, tmp_path / "run")
    assert all(fast == pytest.approx(divisor * slow) for fast, slow in rates)


def test_a_batch_larger_than_that_of_the_network(reference: Path, patches: PatchSet, tmp_path: Path) -> None:
    """The objective ranks the whole batch: only batch normalisation sees chunks."""
    chunked = train(SMALL.model_copy(update={"chunk": 48}), patches, tmp_path / "chunked")
    losses, chunked_losses = read_losses(reference), read_losses(tmp_path / "chunked")
    assert chunked_losses[0] == pytest.approx(losses[0], abs=0.05)
    assert chunked_losses[-1] == pytest.approx(losses[-1], abs=0.1)
    assert not torch.equal(weights_of(reference)["layers.0.weight"], weights_of(chunked)["layers.0.weight"])


def test_a_network_is_compiled_if_the_recipe_says_so(
    reference: Path, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[torch.nn.Module] = []

    def pretend(network: torch.nn.Module) -> torch.nn.Module:
        compiled.append(network)
        return network

    monkeypatch.setattr(torch, "compile", pretend)
    train(SMALL.model_copy(update={"epochs": 1}), patches, tmp_path / "plain")
    assert compiled == []
    model = train(SMALL.model_copy(update={"compile": True}), patches, tmp_path / "compiled")
    assert compiled == [model.network]
    assert same_weights(model, reference)


def test_the_status_is_reported_from_the_first_patch_loaded_to_the_end(patches: PatchSet, tmp_path: Path) -> None:
    reports: list[Status] = []
    recipe = SMALL.model_copy(update={"label_mining": True, "sampling": "sequence-pairs"})
    train(recipe, patches, tmp_path / "run", progress=reports.append)
    before = [status for status in reports if status.preparation]
    assert [status.preparation for status in before] == ["mining labels"] * 2 + ["loading the set"]
    assert before[-1].done == 1
    during = reports[len(before) :]
    assert [status.done for status in during] == sorted(status.done for status in during)
    assert during[-1].done == 1
    assert [status.loss for status in during] == pytest.approx(read_losses(tmp_path / "run"), abs=1e-6)


def test_the_model_is_passed_on_after_every_epoch(patches: PatchSet, tmp_path: Path) -> None:
    sample = patches.take(range(20))
    epochs: list[tuple[int, bool, NDArray[np.float32]]] = []

    def on_epoch(epoch: int, model: Descriptor) -> None:
        epochs.append((epoch, model.training, describe_patches(sample, model)))

    model = train(SMALL, patches, tmp_path / "run", on_epoch=on_epoch)
    assert [(epoch, is_training) for epoch, is_training, _ in epochs] == [(e, False) for e in range(SMALL.epochs)]
    np.testing.assert_array_equal(epochs[-1][2], describe_patches(sample, model))
    assert not np.array_equal(epochs[0][2], epochs[-1][2])


def test_labels_are_mined_from_frames_without_jitter(frames: FrameSet, photo: Grey, tmp_path: Path) -> None:
    train(SMALL.model_copy(update={"label_mining": True, "views_per_group": 2, "epochs": 1}), frames, tmp_path / "run")
    halves = photo[:, :256], photo[:, 256:]
    plain = np.concatenate(
        [extract_patches(half, frames.frames[frames.photos == k], 64, frames.extent) for k, half in enumerate(halves)]
    )

    def take(indices: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(plain[indices])

    expected = mine_labels(frames, take, MiningSettings(seed=SMALL.seed))
    mined = MinedLabels.load(tmp_path / "run" / MINED, frames)
    assert (mined.clusters == expected.clusters).mean() > 0.9  # the order of rounding
    assert mined.thresholds == pytest.approx(expected.thresholds, rel=0.01)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "binary", "pooled_weight": 1.0},
        {"transformer": True, "augment": True},
        {"chunk": 48},
        {"ema_decay": 0.5},
    ],
)
def test_training_on_the_gpu_learns_and_resumes_to_the_same_weights(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    recipe = SMALL.model_copy(update={"epochs": 6, "precision": "auto", "val_fraction": 0.5, **settings})
    whole = train(recipe, patches, tmp_path / "whole", device="cuda")
    losses = read_losses(tmp_path / "whole")
    assert np.mean(losses[-4:]) < 0.9 * np.mean(losses[:4])
    assert describe_patches(patches.take(range(9)), whole).shape[0] == 9
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    monkeypatch.setattr(trainer, "STEPS_PER_READ", 3)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, patches, tmp_path / "stopped", device="cuda", progress=stop_after(0.6))
    assert same_weights(train(recipe, patches, tmp_path / "stopped", device="cuda"), whole)
    assert same_files(tmp_path / "stopped", tmp_path / "whole", "log.csv")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_loss_on_the_gpu_that_is_not_finite_is_reported_with_its_batch(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "make_objective", failing_at(4, float("nan")))
    with pytest.raises(DoapError, match="the loss is nan at batch 3 of epoch 0"):
        train(SMALL, patches, tmp_path / "run", device="cuda")
    last_good = load(tmp_path / "run" / "last-good.safetensors", fast=False).network.state_dict()
    assert all(torch.isfinite(value).all() for value in last_good.values())
