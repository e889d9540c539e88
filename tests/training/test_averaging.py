from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from doap import DoapError, PatchSet, load
from doap.networks.l2net import L2Net
from doap.training import trainer
from doap.training.averaging import MovingAverage
from doap.training.checkpoint import TrainState, load_checkpoint, save_checkpoint
from doap.training.log import Status, read_losses, read_validation
from doap.training.objective import make_objective
from doap.training.recipes.recipe import Recipe
from doap.training.trainer import train
from doap.training.validation import Validation
from support.trainings import L2NET, SMALL, same_files, stop_after

DECAY = 0.8
RECIPE = SMALL.model_copy(update={**L2NET, "batch_size": 64, "ema_decay": DECAY})
Weights = dict[str, torch.Tensor]


def weighted_mean(steps: list[Weights], name: str) -> torch.Tensor:
    """Compute the average by its definition, in double precision."""
    powers = [DECAY ** (len(steps) - 1 - k) for k in range(len(steps))]
    total = sum((power * weights[name].double() for power, weights in zip(powers, steps, strict=True)), torch.zeros(()))
    return total / sum(powers)


class StepReader:
    """Callback of a training with a checkpoint after every step: reads the weights under training after each."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._steps: dict[int, Weights] = {}

    def __call__(self, status: Status) -> None:
        if not status.preparation:
            self.steps()

    def steps(self) -> list[Weights]:
        """Return the weights after each step so far."""
        path = self._run / "checkpoint.safetensors"
        if path.exists():
            tensors = load_file(path)
            prefix = "network."
            own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
            self._steps[int(tensors["steps"])] = own
        return list(self._steps.values())


@pytest.fixture
def _checkpoint_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)


@pytest.mark.usefixtures("_checkpoint_every_step")
def test_saved_weights_are_the_weighted_mean_over_all_steps(noise: PatchSet, tmp_path: Path) -> None:
    reader = StepReader(tmp_path / "run")
    model = train(RECIPE, noise, tmp_path / "run", validation=noise, progress=reader)
    steps = reader.steps()
    saved = load(tmp_path / "run" / "weights.safetensors", fast=False).network.state_dict()
    assert len(steps) == len(read_losses(tmp_path / "run")) >= 10
    for name, value in saved.items():
        assert torch.equal(value, model.network.state_dict()[name])
        if value.is_floating_point():
            torch.testing.assert_close(value.double(), weighted_mean(steps, name), rtol=1e-4, atol=1e-5)
            assert not torch.allclose(value, steps[-1][name], rtol=1e-3)
        else:
            assert value == len(steps)
    again = Validation(noise, RECIPE, torch.device("cpu"), 32).average_precision(model.network)
    assert read_validation(tmp_path / "run")[-1][1] == pytest.approx(again, abs=1e-6)


def test_the_training_itself_is_the_same(reference: Path, patches: PatchSet, tmp_path: Path) -> None:
    train(SMALL.model_copy(update={"ema_decay": DECAY}), patches, tmp_path / "averaged")
    assert same_files(reference, tmp_path / "averaged", "log.csv")


@pytest.mark.usefixtures("_checkpoint_every_step")
def test_it_resumes_to_the_same_bits(noise: PatchSet, tmp_path: Path) -> None:
    train(RECIPE, noise, tmp_path / "whole", validation=noise)
    with pytest.raises(KeyboardInterrupt):
        train(RECIPE, noise, tmp_path / "stopped", validation=noise, progress=stop_after(0.55))
    train(RECIPE, noise, tmp_path / "stopped", validation=noise)
    names = ("weights.safetensors", "best.safetensors", "validation.csv", "checkpoint.safetensors")
    assert same_files(tmp_path / "stopped", tmp_path / "whole", *names)


@pytest.mark.usefixtures("_checkpoint_every_step")
def test_the_last_good_weights_are_averages_too(
    noise: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = StepReader(tmp_path / "run")

    def failing(recipe: Recipe, ranks: int) -> Callable[..., torch.Tensor]:
        loss = make_objective(recipe, ranks)
        return lambda *arguments: loss(*arguments) * (float("nan") if len(reader.steps()) == 5 else 1)

    monkeypatch.setattr(trainer, "make_objective", failing)
    with pytest.raises(DoapError, match="the loss is nan"):
        train(RECIPE, noise, tmp_path / "run", progress=reader)
    saved = load(tmp_path / "run" / "last-good.safetensors", fast=False).network.state_dict()
    name = "layers.0.weight"
    torch.testing.assert_close(saved[name].double(), weighted_mean(reader.steps(), name), rtol=1e-4, atol=1e-5)


def change(network: nn.Module) -> Weights:
    """Replace all weights and statistics by random ones, as a step would, and return them."""
    with torch.no_grad():
        for value in network.state_dict().values():
            value.add_(1) if not value.is_floating_point() else value.normal_()
    return {name: value.clone() for name, value in network.state_dict().items()}


def test_the_average_is_its_definition_after_every_step() -> None:
    network = L2Net(8, 2)
    average = MovingAverage(network, DECAY)
    steps: list[Weights] = []
    for count in range(1, 9):
        steps.append(change(network))
        average.update()
        assert average.steps == count
        for name, value in average.network.state_dict().items():
            if value.is_floating_point():
                torch.testing.assert_close(value.double(), weighted_mean(steps, name), rtol=1e-5, atol=1e-6)
            else:
                assert torch.equal(value, steps[-1][name])
        if count == 1:
            assert all(torch.equal(value, steps[0][name]) for name, value in average.network.state_dict().items())
    assert not average.network.training
    assert not any(parameter.requires_grad for parameter in average.network.parameters())


def test_an_average_continues_from_a_checkpoint(tmp_path: Path) -> None:
    def start() -> tuple[L2Net, torch.optim.SGD, MovingAverage]:
        network = L2Net(8, 2)
        return network, torch.optim.SGD(network.parameters(), 0.1, 0.9), MovingAverage(network, DECAY)

    network, optimiser, average = start()
    for _ in range(3):
        change(network)
        average.update()
    save_checkpoint(tmp_path / "c.safetensors", network, optimiser, TrainState(), average)
    names = set(load_file(tmp_path / "c.safetensors"))
    expected = {f"{prefix}.{name}" for prefix in ("network", "average") for name in network.state_dict()}
    assert names == {*expected, "steps"}  # as version 0.1 named them
    other, other_optimiser, continued = start()
    load_checkpoint(tmp_path / "c.safetensors", other, other_optimiser, continued)
    for following, followed in ((network, average), (other, continued)):
        torch.manual_seed(1)
        change(following)
        followed.update()
    assert continued.steps == average.steps == 4
    state = average.network.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in continued.network.state_dict().items())
