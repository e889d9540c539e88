"""Fine-tuning: trainings that start from a trained model."""

import hashlib
import json
from pathlib import Path

import pytest
import torch

from doap import DoapError, Recipe, load, read_recipe
from doap.networks.card import DataSource, TrainingSet, read_card, write_card
from doap.networks.registry import find_weights
from doap.training import trainer
from doap.training.distributed import make_fabric
from doap.training.run_folder import DataSpec
from doap.training.trainer import Trainer, train
from support.trainings import SMALL, noisy_patches, same_weights, stop_after

SHIPPED = "doap-tiny-128"


def start_from(model: str | Path, **settings: object) -> Recipe:
    return SMALL.model_copy(update={"initial_weights": str(model), **settings})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of a short training."""
    run = tmp_path_factory.mktemp("runs") / "first"
    train(SMALL, noisy_patches(), run)
    return run / "weights.safetensors"


def test_the_first_step_sees_exactly_the_weights_of_the_model(trained: Path, tmp_path: Path) -> None:
    recipe = start_from(trained, ema_decay=0.5)
    begun = Trainer(recipe, noisy_patches(), tmp_path, make_fabric(recipe, "cpu", 1))
    expected = load(trained, fast=False).network.state_dict()
    for network in (begun.network, begun.result):
        actual = network.state_dict()
        assert list(actual) == list(expected)
        assert all(torch.equal(actual[name], expected[name]) for name in expected)  # statistics included
    assert begun.network.training
    assert all(parameter.requires_grad for parameter in begun.network.parameters())


def test_a_shipped_model_is_a_start(tmp_path: Path) -> None:
    architecture = read_card(find_weights(SHIPPED)).architecture
    recipe = Recipe.model_validate({**architecture.model_dump(), "initial_weights": SHIPPED, "lr": 1e-9, "epochs": 1,
                                    "batch_size": 128, "dropout": 0.0, "precision": "fp32"})  # fmt: skip
    model = train(recipe, noisy_patches(), tmp_path / "run")
    expected = load(SHIPPED, fast=False).network.state_dict()
    for name, parameter in model.network.named_parameters():
        torch.testing.assert_close(parameter, expected[name], rtol=0, atol=1e-6)


def test_the_start_is_recorded(trained: Path, tmp_path: Path) -> None:
    card = read_card(trained)
    hpatches = TrainingSet(path="hpatches", layout="hpatches", split="a", sequences=["i_one"])
    copy = tmp_path / "start.safetensors"
    copy.write_bytes(trained.read_bytes())
    write_card(copy, card.model_copy(update={"origin": card.origin.model_copy(update={"training_sets": [hpatches]})}))
    train(start_from(copy), noisy_patches(), tmp_path / "run")
    expected = {"model": str(copy), "sha256": hashlib.sha256(copy.read_bytes()).hexdigest()}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["initial_weights"] == expected
    origin = read_card(tmp_path / "run" / "weights.safetensors").origin
    assert origin.notes["initial_weights"] == expected
    assert origin.recipe["initial_weights"] == str(copy)
    assert hpatches in origin.training_sets  # benchmarks know what the model has seen, whoever trained it


def test_the_provenance_of_the_start_is_inherited(trained: Path, tmp_path: Path) -> None:
    card = read_card(trained)
    sources = [DataSource(source="a", licence="no licence stated", photos=3)]
    origin = card.origin.model_copy(
        update={"licence": "MIT", "data": "photos", "sources": sources, "figures": {"AP %": 80.0},
                "notes": {"command": "doap train", "limits": "photographs only"}}
    )  # fmt: skip
    start = tmp_path / "start.safetensors"
    start.write_bytes(trained.read_bytes())
    write_card(start, card.model_copy(update={"origin": origin}))
    recipe = start_from(start, val_fraction=0.5)
    train(recipe, noisy_patches(), tmp_path / "run", source=DataSpec(["own"]))
    for weights in ("weights.safetensors", "best.safetensors"):
        tuned = read_card(tmp_path / "run" / weights).origin
        assert (tuned.licence, tuned.data, tuned.sources) == ("MIT", "photos; own", sources)
        assert tuned.notes["limits"] == "photographs only"
        assert "command" not in tuned.notes
        assert "AP %" not in tuned.figures
        assert tuned.training_sets == [TrainingSet(path="own"), *origin.training_sets]


def test_an_interrupted_fine_tuning_resumes_to_the_same_bits(trained: Path, tmp_path: Path) -> None:
    recipe = start_from(trained)
    whole = train(recipe, noisy_patches(), tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
        train(recipe, noisy_patches(), tmp_path / "run", progress=stop_after(0.4))
    assert same_weights(train(recipe, noisy_patches(), tmp_path / "run"), whole)
    assert not same_weights(whole, train(SMALL, noisy_patches(), tmp_path / "random"))


def test_a_run_whose_start_has_changed_is_not_resumed(trained: Path, tmp_path: Path) -> None:
    copy = tmp_path / "start.safetensors"
    for suffix in (".safetensors", ".json"):
        copy.with_suffix(suffix).write_bytes(trained.with_suffix(suffix).read_bytes())
    with pytest.raises(KeyboardInterrupt):
        train(start_from(copy), noisy_patches(), tmp_path / "run", progress=stop_after(0.0))
    model = train(SMALL.model_copy(update={"seed": 5}), noisy_patches(), tmp_path / "other")
    assert model.name == "doap"
    for suffix in (".safetensors", ".json"):
        copy.with_suffix(suffix).write_bytes((tmp_path / "other" / f"weights{suffix}").read_bytes())
    with pytest.raises(DoapError, match="that it starts from have changed"):
        train(start_from(copy), noisy_patches(), tmp_path / "run")


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (SHIPPED, {}, r"initial_weights=doap-tiny-128: its network has network=windows, dimensions=128, width=32, but "
                      r"that of the recipe network=tiny, dimensions=16, width=8"),
        ("doap-128", {"width": 32, "dimensions": 128}, r"its network has network=l2net, .* but .* network=tiny"),
        ("sift", {}, "initial_weights=sift: handcrafted, it has no weights"),
        ("doap-9000", {}, "initial_weights=doap-9000: no such file, and no model"),
    ],
)  # fmt: skip
def test_a_start_that_does_not_fit_is_one_line(
    model: str, settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DoapError, match=message) as raised:
        train(start_from(model, **settings), noisy_patches(), tmp_path / "run")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_weights_of_another_kind_are_a_start(trained: Path, tmp_path: Path) -> None:
    model = train(start_from(trained, kind="binary"), noisy_patches(), tmp_path / "run")
    assert model.kind == "binary"


def test_the_path_in_a_recipe_is_made_absolute(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained.parent)
    (tmp_path / "r.yaml").write_text("initial_weights: weights.safetensors\n")
    assert read_recipe(tmp_path / "r.yaml").initial_weights == str(trained)
