"""Labels and outputs at the limits of their types: the textbook's value, or NaN for outputs that are not finite."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from doap.objectives import AveragePrecisionLoss
from doap.types import Kind
from objectives.baselines.test_baselines import BASELINES
from support.textbook import textbook_loss

LOWEST, HIGHEST = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
BINS: dict[Kind, int] = {"real": 25, "binary": 6}

GROUPS = {
    "limits of int64": torch.tensor([LOWEST, HIGHEST, LOWEST, HIGHEST, -1, 0, 0]),
    "neighbours of the limit": torch.tensor([HIGHEST, HIGHEST - 1, HIGHEST - 1, HIGHEST]),
    "limits of int8": torch.tensor([-128, 127, 127, -128], dtype=torch.int8),
    "bytes": torch.tensor([255, 0, 0, 255], dtype=torch.uint8),
    "bool": torch.tensor([True, False, False, True]),
    "groups of one": torch.tensor([4, 3, 2, 3, 1]),
    "one group": torch.zeros(5, dtype=torch.int64),
    "one pair": torch.tensor([7, 7]),
}
OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "random": lambda x: x,
    "constant": torch.ones_like,
    "duplicated": lambda x: x[torch.arange(len(x)) // 2],
    "opposite": lambda x: x[:1] * (-1.0) ** torch.arange(len(x))[:, None],
    "large": lambda x: 1e15 * x,
    "small": lambda x: 1e-15 * x,
}
LOSSES: tuple[Callable[[], nn.Module], ...] = (
    lambda: AveragePrecisionLoss("real"),
    lambda: AveragePrecisionLoss("binary"),
    lambda: AveragePrecisionLoss("real", pooled_weight=0.5, matching_weight=0.5),
    lambda: AveragePrecisionLoss("real", bin_power=2.0),
    *BASELINES,
)


def sample_outputs(count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(0), dtype=dtype)


def number(groups: Tensor) -> Tensor:
    """Return the same groups as small integers."""
    indices: Tensor = torch.unique(groups, return_inverse=True)[1]
    return indices


@pytest.mark.parametrize("kind", BINS)
@pytest.mark.parametrize("transform", OUTPUTS)
@pytest.mark.parametrize("case", GROUPS)
def test_the_loss_is_that_of_the_textbook(case: str, transform: str, kind: Kind) -> None:
    groups = GROUPS[case]
    outputs = OUTPUTS[transform](sample_outputs(len(groups)))
    loss = AveragePrecisionLoss(kind)
    # The length of a vector does not matter; PyTorch's normalisation in the textbook has a smallest one.
    exact = outputs.double() / outputs.abs().amax() if kind == "real" else outputs.double()
    expected = float(textbook_loss(exact, number(groups), kind, BINS[kind]))
    assert float(loss(outputs, groups)) == pytest.approx(expected, abs=1e-4)
    no_pair = torch.zeros(len(groups), len(groups), dtype=torch.bool)
    assert float(loss(outputs, groups, no_pair)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("make", LOSSES)
@pytest.mark.parametrize("case", GROUPS)
def test_only_the_equality_of_labels_matters(case: str, make: Callable[[], nn.Module]) -> None:
    groups = GROUPS[case]
    outputs = sample_outputs(len(groups), torch.float64).requires_grad_()
    loss, expected = make()(outputs, groups), make()(outputs, number(groups))
    assert loss.isfinite()
    torch.testing.assert_close(loss, expected)
    gradients = [torch.autograd.grad(value, outputs)[0] for value in (loss, expected)]
    assert gradients[0].isfinite().all()
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("make", LOSSES)
def test_outputs_that_are_not_finite_show_in_the_loss(make: Callable[[], nn.Module], value: float) -> None:
    """Bits relaxed by tanh are defined at infinity."""
    outputs, groups = sample_outputs(6), torch.tensor([0, 0, 1, 1, 2, 2])
    outputs[1, 2] = value
    loss = make()
    is_binary = getattr(loss, "kind", "") == "binary"
    assert loss(outputs, groups).isnan() == (not is_binary or math.isnan(value))
    if isinstance(loss, AveragePrecisionLoss):
        no_pair = torch.zeros(6, 6, dtype=torch.bool)
        assert loss(outputs, groups, no_pair).isnan() == (not is_binary or math.isnan(value))


def test_labels_must_be_integers() -> None:
    for dtype in (torch.float32, torch.complex64):
        with pytest.raises(ValueError, match="groups must be 4 integers"):
            AveragePrecisionLoss("real")(torch.ones(4, 2), torch.zeros(4, dtype=dtype))
