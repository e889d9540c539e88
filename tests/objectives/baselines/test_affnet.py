import pytest
import torch

from doap.objectives.baselines.affnet import HardNegativeConstantLoss
from doap.objectives.baselines.hardnet import HardNetLoss


def test_value_is_that_of_hardnet_and_the_gradient_that_of_matches_alone() -> None:
    outputs = torch.randn(16, 8, dtype=torch.float64, requires_grad=True)
    groups = torch.arange(8).repeat_interleave(2)
    loss = HardNegativeConstantLoss()(outputs, groups)
    assert float(loss) == pytest.approx(float(HardNetLoss()(outputs, groups)))
    (gradient,) = torch.autograd.grad(loss, outputs)
    # Textbook form: the distance of each pair whose margin is violated, over the number of pairs.
    unit = torch.nn.functional.normalize(outputs, dim=1)
    distances = (unit[::2, None] - unit[None, 1::2]).norm(dim=2)
    others = distances.detach() + 10 * torch.eye(8)
    violated = 1 + distances.diagonal().detach() > torch.minimum(others.amin(0), others.amin(1))
    (expected,) = torch.autograd.grad(distances.diagonal()[violated].sum() / 8, outputs)
    torch.testing.assert_close(gradient, expected)
