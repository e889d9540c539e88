from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from doap import DoapError, PatchSet, load
from doap.training import trainer
from doap.training.averaging import MovingAverage
from doap.training.log import Status, read_losses, read_validation
from doap.training.recipe import Recipe
from doap.training.trainer import train
from doap.training.validation import Validation

DECAY = 0.8
RECIPE = Recipe(width=2, dimensions=16, batch_size=64, epochs=3, lr=1.0, precision="fp32", ema_decay=DECAY)
Weights = dict[str, torch.Tensor]


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> list[Weights]:
    """The weights of the network that is trained, after each step."""
    seen: list[Weights] = []
    step: Callable[..., torch.Tensor] = trainer.Training.step

    def spy(self: trainer.Training, *arguments: Any) -> torch.Tensor:
        loss = step(self, *arguments)
        seen.append({name: value.clone() for name, value in self.network.state_dict().items()})
        return loss

    monkeypatch.setattr(trainer.Training, "step", spy)
    return seen


def weighted_mean(after: list[Weights], name: str) -> torch.Tensor:
    """From the definition, in double precision."""
    shares = [DECAY ** (len(after) - 1 - k) for k in range(len(after))]
    total = sum(share * weights[name].double() for share, weights in zip(shares, after, strict=True))
    return total / sum(shares)


def test_what_is_kept_is_the_weighted_mean_over_all_steps(
    patches: PatchSet, tmp_path: Path, after: list[Weights]
) -> None:
    model = train(RECIPE, patches, tmp_path / "run", validation=patches)
    kept = load(tmp_path / "run" / "weights.safetensors").network.state_dict()
    assert len(after) == len(read_losses(tmp_path / "run")) >= 12
    for name, value in kept.items():
        assert torch.equal(value, model.network.state_dict()[name])
        if value.is_floating_point():
            torch.testing.assert_close(value.double(), weighted_mean(after, name), rtol=1e-4, atol=1e-5)
            assert not torch.allclose(value, after[-1][name], rtol=1e-3)
        else:
            assert value == len(after)
    validated = read_validation(tmp_path / "run")
    again = Validation(patches, RECIPE, torch.device("cpu"), 32).average_precision(model.network)
    assert validated[-1][1] == pytest.approx(again, abs=1e-6)


def test_the_training_itself_is_the_same(patches: PatchSet, tmp_path: Path) -> None:
    for name, decay in (("plain", 0.0), ("averaged", DECAY)):
        train(RECIPE.model_copy(update={"ema_decay": decay}), patches, tmp_path / name)
    assert (tmp_path / "plain" / "log.csv").read_bytes() == (tmp_path / "averaged" / "log.csv").read_bytes()


def test_it_resumes_to_the_same_bits(patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(RECIPE, patches, tmp_path / "whole", validation=patches)
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)

    def stop(status: Status) -> None:
        if not status.doing and status.done > 0.55:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(RECIPE, patches, tmp_path / "stopped", validation=patches, progress=stop)
    train(RECIPE, patches, tmp_path / "stopped", validation=patches)
    for file in ("weights.safetensors", "best.safetensors", "validation.csv", "checkpoint.safetensors"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_the_last_good_weights_are_averages_too(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: list[Weights]
) -> None:
    make = trainer.make_objective

    def failing(recipe: Recipe, ranks: int) -> Callable[..., torch.Tensor]:
        whole = make(recipe, ranks)
        return lambda *arguments: whole(*arguments) * (float("nan") if len(after) == 5 else 1)

    monkeypatch.setattr(trainer, "make_objective", failing)
    with pytest.raises(DoapError, match="the loss is nan"):
        train(RECIPE, patches, tmp_path / "run")
    kept = load(tmp_path / "run" / "last-good.safetensors").network.state_dict()
    name = "layers.0.weight"
    torch.testing.assert_close(kept[name].double(), weighted_mean(after[:5], name), rtol=1e-4, atol=1e-5)


def test_the_average_of_one_step_is_that_step() -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    average = MovingAverage(network, 0.999)  # type: ignore[arg-type]
    with torch.no_grad():
        network[0].weight.fill_(7)
    average.update()
    assert torch.equal(average.network.state_dict()["0.weight"], network[0].weight)
    assert average.steps == 1
