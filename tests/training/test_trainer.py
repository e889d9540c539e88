import errno
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from doap import DoapError, PatchSet, describe_patches, load
from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.build.cutting import cut_patches
from doap.datasets.label_mining.mining import MinedLabels, mine_labels
from doap.evaluation.metrics.average_precision import average_precision
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog
from doap.networks.l2net import L2Net
from doap.training import checkpoint, trainer
from doap.training.batches import Batches
from doap.training.data_cache import hold_out
from doap.training.log import Status, read_losses, read_validation
from doap.training.objective import make_objective
from doap.training.recipe import Recipe
from doap.training.run_folder import WEIGHTS, Source
from doap.training.trainer import train
from doap.training.validation import Validation

SMALL = Recipe(width=2, dimensions=16, batch_size=128, epochs=2, lr=1.0, dropout=0.1, precision="fp32")


@pytest.fixture(scope="module")
def patches(tmp_path_factory: pytest.TempPathFactory, photo: np.ndarray) -> PatchSet:
    path = tmp_path_factory.mktemp("data") / "set"
    halves = [("left", photo[:, :256]), ("right", photo[:, 256:])]
    cut_patches(frame_set_from_photos(halves, lambda image: detect_dog(image, 150)), path)
    return PatchSet.open(path)


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
    recipe = Recipe(width=4, dimensions=32, batch_size=256, epochs=12, lr=1.0, seed=1)
    model = train(recipe, patches, tmp_path / "run", name="small", source=Source("two halves"))
    torch.manual_seed(recipe.seed)
    untrained = L2Net(32, 4).train()
    assert mean_ap(patches, model.network.eval()) > mean_ap(patches, untrained) + 0.15
    losses = read_losses(tmp_path / "run")
    assert np.mean(losses[-3:]) < 0.5 * np.mean(losses[:3])
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["data"] == "two halves"
    assert about["precision"] in ("fp32", "bf16")
    assert set(about["versions"]) == {"doap", "torch", "numpy", "python"}
    again = load(tmp_path / "run" / "weights.safetensors")
    assert (again.name, again.extent) == ("small", 12.0)
    sample = patches.take(range(50))
    np.testing.assert_allclose(describe_patches(sample, again), describe_patches(sample, model), atol=1e-5)


def mean_ap(patches: PatchSet, network: L2Net) -> float:
    """Exact AP by sorting, every patch a query."""
    with torch.no_grad():
        values = network(torch.from_numpy(patches.take(range(len(patches))))[:, None].float())
    vectors = torch.nn.functional.normalize(values, dim=1).numpy()
    distances = 2 - 2 * vectors @ vectors.T
    precisions = []
    for query in range(0, len(patches), 7):
        others = np.arange(len(patches)) != query
        right = patches.groups[others] == patches.groups[query]
        precisions.append(average_precision(distances[query, others], right))
    return float(np.mean(precisions))


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_one_seed_fixes_a_run(kind, patches: PatchSet, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    recipe = SMALL.model_copy(update={"kind": kind})
    first, second = (train(recipe, patches, tmp_path / name).network.state_dict() for name in "ab")
    other = train(recipe.model_copy(update={"seed": 9}), patches, tmp_path / "c").network.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["layers.0.weight"], other["layers.0.weight"])


def test_the_rate_falls_linearly_to_zero(patches: PatchSet, tmp_path: Path) -> None:
    train(SMALL, patches, tmp_path / "run")
    rows = (tmp_path / "run" / "log.csv").read_text().split()[1:]
    rates = [float(row.split(",")[3]) for row in rows]
    expected = SMALL.initial_lr() * (1 - np.arange(len(rates)) / len(rates))
    np.testing.assert_allclose(rates, expected, rtol=1e-4)


TRAINING = """
import os, signal, sys, pathlib
from doap import PatchSet
from doap.training import trainer, checkpoint
from doap.training.recipe import read_recipe

trainer.CHECKPOINT_SECONDS = 0
steps = 0

def count(status):
    global steps
    steps += not status.doing
    if where == "epoch" and steps == 7:
        os.kill(os.getpid(), signal.SIGKILL)

def write_half(tensors, path, metadata):
    pathlib.Path(path).write_bytes(b"half of a checkpoint")
    if steps >= 8:
        os.kill(os.getpid(), signal.SIGKILL)
    whole(tensors, path, metadata)

where, data, recipe, run = sys.argv[1:]
if where == "checkpoint":
    whole, checkpoint.save_file = checkpoint.save_file, write_half
trainer.train(read_recipe(pathlib.Path(recipe)), PatchSet.open(data), pathlib.Path(run), progress=count)
"""


@pytest.mark.parametrize("where", ["epoch", "checkpoint"])
def test_a_killed_training_goes_on_to_the_same_weights(patches: PatchSet, tmp_path: Path, where: str) -> None:
    data = str(Path(patches.shards[0].filename).parent)  # type: ignore[attr-defined]
    (tmp_path / "recipe.yaml").write_text(SMALL.to_yaml())

    def run(killed: str, folder: str) -> int:
        """In processes of their own, as users run them."""
        command = [sys.executable, "-c", TRAINING, killed, data, str(tmp_path / "recipe.yaml"), str(tmp_path / folder)]
        return subprocess.run(command, check=False).returncode

    assert run("never", "whole") == 0
    assert run(where, "killed") == -signal.SIGKILL
    assert (tmp_path / "killed" / "checkpoint.safetensors").exists()
    assert not (tmp_path / "killed" / "weights.safetensors").exists()
    assert run("never", "killed") == 0
    whole, resumed = (load(tmp_path / run / "weights.safetensors").network.state_dict() for run in ("whole", "killed"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert read_losses(tmp_path / "killed") == read_losses(tmp_path / "whole")


def test_folders_that_do_not_fit_are_refused(patches: PatchSet, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(SMALL, patches, run)
    with pytest.raises(DoapError, match="this training is complete"):
        train(SMALL, patches, run)
    (run / "weights.safetensors").unlink()
    with pytest.raises(DoapError, match="another recipe"):
        train(SMALL.model_copy(update={"epochs": 9}), patches, run)
    with pytest.raises(DoapError, match="another set"):
        train(SMALL, PatchSet([patches.take(range(400))], np.arange(400) // 4), run)
    (run / "checkpoint.safetensors").write_bytes(b"not this")
    with pytest.raises(DoapError, match="not a checkpoint"):
        train(SMALL, patches, run)
    with pytest.raises(DoapError, match="not the folder of a run"):
        train(SMALL, patches, tmp_path)


def stop(status: Status) -> None:
    """Stop a training, as Ctrl-C does, when three fifths are done."""
    if not status.doing and status.done > 0.6:
        raise KeyboardInterrupt


def failing_at(call: int, value: float) -> Callable[..., object]:
    """A `make_objective` whose loss is multiplied by `value` at one call."""
    calls = 0

    def make(recipe: Recipe, ranks: int) -> object:
        whole = make_objective(recipe, ranks)

        def loss(*arguments: object) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return whole(*arguments) * (value if calls == call else 1)  # type: ignore[arg-type]

        return loss

    return make


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_what_was_good(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    good = []
    with monkeypatch.context() as patched:
        patched.setattr(trainer, "make_objective", failing_at(4, float("nan")))
        patched.setattr(trainer.Training, "_weights", spy(trainer.Training._weights, good))
        with pytest.raises(DoapError, match=r"the loss is nan at batch 3 of epoch 0 .*last good weights") as caught:
            train(SMALL, patches, run)
    assert "\n" not in str(caught.value)
    failure = json.loads((run / "failure.json").read_text())
    expected = Batches(patches, SMALL, "cpu", 32).indices(0, 3)
    assert (failure["epoch"], failure["batch"], failure["items"]) == (0, 3, expected.tolist())
    kept = load(run / "last-good.safetensors").network.state_dict()
    assert all(torch.equal(kept[name], value) for name, value in good[3].items())  # after the third step
    again = train(SMALL, patches, run).network.state_dict()
    assert not {"failure.json", "last-good.safetensors", "last-good.json"} & {path.name for path in run.iterdir()}
    whole = train(SMALL, patches, tmp_path / "whole").network.state_dict()
    assert all(torch.equal(again[name], whole[name]) for name in whole)


def spy(method: Callable[..., dict[str, torch.Tensor]], seen: list[dict[str, torch.Tensor]]) -> Callable[..., object]:
    def call(self: object) -> dict[str, torch.Tensor]:
        seen.append(method(self))
        return seen[-1]

    return call


def test_weights_that_are_no_numbers_stop_the_run(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gradient may overflow while its loss is still a number."""
    step = torch.optim.SGD.step

    def overflow(self: torch.optim.SGD, *arguments: object) -> None:
        self.param_groups[0]["params"][0].grad.fill_(torch.inf)
        step(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.optim.SGD, "step", overflow)
    with pytest.raises(DoapError, match="the weights are no numbers at batch 0 of epoch 0"):
        train(SMALL, patches, tmp_path / "run")
    kept = load(tmp_path / "run" / "last-good.safetensors").network.state_dict()
    assert all(torch.isfinite(value).all() for value in kept.values())


def test_a_full_disk_loses_no_earlier_checkpoint(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    writes = 0

    def full(tensors: object, path: Path, metadata: object) -> None:
        nonlocal writes
        writes += 1
        if writes == 6:
            Path(path).write_bytes(b"as much as there was room for")
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        save_file(tensors, path, metadata)  # type: ignore[arg-type]

    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save_file", full)
        with pytest.raises(OSError, match="No space left"):
            train(SMALL, patches, run)
    with safe_open(run / "checkpoint.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["place"])["batch"] == 5
    assert not [path for path in run.iterdir() if path.name.startswith(".")]
    again = train(SMALL, patches, run).network.state_dict()
    whole = train(SMALL, patches, tmp_path / "whole").network.state_dict()
    assert all(torch.equal(again[name], whole[name]) for name in whole)


def test_held_out_scenes_are_judged_and_the_best_weights_kept(patches: PatchSet, tmp_path: Path) -> None:
    recipe = SMALL.model_copy(update={"val_fraction": 0.5, "epochs": 5})
    run = tmp_path / "run"
    train(recipe, patches, run)
    judged = read_validation(run)
    assert [epoch for epoch, _ in judged] == [0, 1, 2, 3, 4]
    training, held_out = hold_out(patches, recipe)
    assert not set(training.sequences) & set(held_out.sequences)
    assert len(training) + len(held_out) == len(patches)
    best = load(run / "best.safetensors")
    again = Validation(held_out, recipe, torch.device("cpu"), 32).average_precision(best.network)
    assert again == pytest.approx(max(ap for _, ap in judged), abs=1e-6)
    last = Validation(held_out, recipe, torch.device("cpu"), 32).average_precision(load(run / WEIGHTS).network)
    assert last == pytest.approx(judged[-1][1], abs=1e-6)
    assert list((run / "tensorboard").iterdir())


def test_a_run_with_validation_resumes_to_the_same_record(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = SMALL.model_copy(update={"val_fraction": 0.5, "epochs": 4})
    train(recipe, patches, tmp_path / "whole")
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)

    with pytest.raises(KeyboardInterrupt):
        train(recipe, patches, tmp_path / "stopped", progress=stop)
    train(recipe, patches, tmp_path / "stopped")
    for file in ("log.csv", "validation.csv", "best.safetensors", "weights.safetensors"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "hardnet", "views_per_group": 2},
        {"objective": "hardnet-gor", "views_per_group": 2},
        {"objective": "l2net", "views_per_group": 2},
        {"objective": "sosnet", "views_per_group": 2},
        {"objective": "hynet", "views_per_group": 2},
        {"objective": "fastap"},
        {"objective": "smooth-ap"},
        {"objective": "triplet", "views_per_group": 2},
        {"kind": "binary", "pooled_weight": 1.0},
        {"transformer": True, "augment": True},
        {"network": "cs-l2net"},
        {"network": "tiny", "width": 8},
        {"label_mining": True, "sampling": "sequence-pairs", "epochs": 12},  # one batch an epoch
        {"precision": "bf16"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_every_kind_of_training_learns(patches: PatchSet, tmp_path: Path, settings: dict[str, Any]) -> None:
    recipe = SMALL.model_copy(update={"epochs": 6, **settings})
    model = train(recipe, patches, tmp_path / "run")
    losses = read_losses(tmp_path / "run")
    assert np.mean(losses[-4:]) < 0.93 * np.mean(losses[:4])
    assert load(tmp_path / "run" / "weights.safetensors").input_size == model.input_size


@pytest.mark.parametrize(("settings", "times"), [({}, 100), ({"transformer_lr_divisor": 2000}, 2000)])
def test_the_prediction_of_the_transformation_learns_slower(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, float], times: float
) -> None:
    rates = []
    step = torch.optim.SGD.step

    def look(self: torch.optim.SGD, *arguments: object) -> None:
        rates.append([group["lr"] for group in self.param_groups])
        step(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.optim.SGD, "step", look)
    train(SMALL.model_copy(update={"transformer": True, **settings}), patches, tmp_path / "run")
    assert all(fast == pytest.approx(times * slow) for fast, slow in rates)


def test_a_list_longer_than_the_networks_batch(patches: PatchSet, tmp_path: Path) -> None:
    """The list is whole: only batch normalisation sees parts."""
    whole = train(SMALL, patches, tmp_path / "whole")
    parts = train(SMALL.model_copy(update={"chunk": 48}), patches, tmp_path / "parts")
    losses = [read_losses(tmp_path / name) for name in ("whole", "parts")]
    assert losses[1][0] == pytest.approx(losses[0][0], abs=0.05)
    assert losses[1][-1] == pytest.approx(losses[0][-1], abs=0.1)
    first = whole.network.state_dict()["layers.0.weight"]
    assert not torch.equal(first, parts.network.state_dict()["layers.0.weight"])


def test_a_network_is_compiled_where_the_recipe_says_so(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    def pretend(network: torch.nn.Module) -> torch.nn.Module:
        compiled.append(network)
        return network

    monkeypatch.setattr(torch, "compile", pretend)
    plain = train(SMALL, patches, tmp_path / "plain").network.state_dict()
    assert compiled == []
    model = train(SMALL.model_copy(update={"compile": True}), patches, tmp_path / "compiled")
    assert compiled == [model.network]
    assert all(torch.equal(plain[name], value) for name, value in model.network.state_dict().items())


def test_news_come_from_the_first_patch_loaded_to_the_end(patches: PatchSet, tmp_path: Path) -> None:
    news: list[Status] = []
    recipe = SMALL.model_copy(update={"label_mining": True, "sampling": "sequence-pairs", "val_fraction": 0})
    train(recipe, patches, tmp_path / "run", progress=news.append)
    before = [status for status in news if status.doing]
    assert [status.doing for status in before] == ["mining labels"] * 2 + ["loading the set"]
    assert before[-1].done == 1
    during = news[len(before) :]
    assert [status.done for status in during] == sorted(status.done for status in during)
    assert during[-1].done == 1
    assert [status.loss for status in during] == pytest.approx(read_losses(tmp_path / "run"), abs=1e-6)


def test_labels_are_mined_from_frames_as_they_are(photo: np.ndarray, tmp_path: Path) -> None:
    frames = frame_set_from_photos([("photo", photo)], lambda image: detect_dog(image, 160))
    train(SMALL.model_copy(update={"label_mining": True, "views_per_group": 2, "epochs": 1}), frames, tmp_path / "run")
    plain = extract_patches(photo, frames.frames, 64, frames.extent)
    expected = mine_labels(frames, lambda indices: torch.from_numpy(plain[indices]), seed=SMALL.seed)
    found = MinedLabels.load(tmp_path / "run" / trainer.MINED, frames)
    assert (found.clusters == expected.clusters).mean() > 0.9  # the order of rounding
    assert found.thresholds == pytest.approx(expected.thresholds, rel=0.01)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "settings",
    [{"kind": "binary", "pooled_weight": 1.0}, {"transformer": True, "augment": True}, {"chunk": 48}, {"ema_decay": 0.5}],
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
    monkeypatch.setattr(trainer, "STEPS_A_BUNCH", 3)

    with pytest.raises(KeyboardInterrupt):
        train(recipe, patches, tmp_path / "stopped", device="cuda", progress=stop)
    again = train(recipe, patches, tmp_path / "stopped", device="cuda").network.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in whole.network.state_dict().items())
    assert (tmp_path / "stopped" / "log.csv").read_bytes() == (tmp_path / "whole" / "log.csv").read_bytes()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_loss_on_the_gpu_that_is_no_number_is_told_with_its_batch(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "make_objective", failing_at(4, float("nan")))
    with pytest.raises(DoapError, match="the loss is nan at batch 3 of epoch 0"):
        train(SMALL, patches, tmp_path / "run", device="cuda")
    kept = load(tmp_path / "run" / "last-good.safetensors").network.state_dict()
    assert all(torch.isfinite(value).all() for value in kept.values())


@pytest.mark.parametrize("settings", [{}, {"zoom": 1.0, "ema_decay": 0.5}], ids=["plain", "zoom"])
def test_training_on_frames_goes_on_to_the_same_weights(
    photo: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    frames = frame_set_from_photos([("photo", photo)], lambda image: detect_dog(image, 160))
    recipe = SMALL.model_copy(update={"views_per_group": 4, "augment": True, "epochs": 3, **settings})
    whole = train(recipe, frames, tmp_path / "whole")
    losses = read_losses(tmp_path / "whole")
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.1
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)

    with pytest.raises(KeyboardInterrupt):
        train(recipe, frames, tmp_path / "stopped", progress=stop)
    again = train(recipe, frames, tmp_path / "stopped").network.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in whole.network.state_dict().items())
