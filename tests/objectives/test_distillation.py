import pytest
import torch
from torch import Tensor

from doap.objectives import DistillationLoss, Kind

KINDS = [("real", "real"), ("real", "binary"), ("binary", "real"), ("binary", "binary")]


def slow(outputs: Tensor, taught: Tensor, kind: Kind, teacher_kind: Kind) -> Tensor:
    """The definition, pair by pair."""

    def student(a: Tensor, b: Tensor) -> Tensor:
        if kind == "real":
            return torch.dot(a, b) / (a.norm() * b.norm())
        return torch.dot(a.tanh(), b.tanh()) / len(a)

    def teacher(a: Tensor, b: Tensor) -> float:
        if teacher_kind == "real":
            return float(torch.dot(a, b) / (a.norm() * b.norm()))
        hamming = int(((a > 0) != (b > 0)).sum())
        return 1 - 2 * hamming / len(a)

    places = range(len(outputs))
    differences = [
        student(outputs[i], outputs[j]) - teacher(taught[i], taught[j]) for i in places for j in places if i != j
    ]
    return torch.stack(differences).square().mean()


@pytest.mark.parametrize(("kind", "teacher_kind"), KINDS)
def test_value_and_gradient_are_those_of_the_definition(kind: Kind, teacher_kind: Kind) -> None:
    outputs = torch.randn(9, 5, dtype=torch.float64)
    outputs[3] = outputs[4]  # patches described alike
    outputs.requires_grad_()
    taught = torch.randn(9, 16, dtype=torch.float64)
    taught[2, :3] = 0  # no bit: what is not above 0 is 0
    loss = DistillationLoss(kind, teacher_kind)(outputs, taught)
    expected = slow(outputs, taught, kind, teacher_kind)
    (gradient,) = torch.autograd.grad(loss, outputs)
    (right,) = torch.autograd.grad(expected, outputs)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, right, rtol=1e-9, atol=1e-12)
    assert right.abs().max() > 1e-3


def test_a_student_like_its_teacher_has_nothing_to_learn() -> None:
    taught = torch.randn(300, 128)
    turned, _ = torch.linalg.qr(torch.randn(128, 128))
    outputs = (3 * taught @ turned).requires_grad_()  # lengths and the choice of axes do not matter
    loss = DistillationLoss("real", "real")(outputs, taught)
    (gradient,) = torch.autograd.grad(loss, outputs)
    assert abs(float(loss.detach())) < 1e-6
    assert gradient.abs().max() < 1e-7
    bits = 20 * taught.sign()
    assert abs(float(DistillationLoss("binary", "binary")(bits, taught))) < 1e-6


def test_descending_makes_a_student_rank_as_its_teacher() -> None:
    taught = torch.randn(40, 64)
    taught[::2] += 2 * taught[1::2]  # some are alike
    outputs = torch.randn(40, 24).requires_grad_()
    loss = DistillationLoss("real", "real")
    before = float(loss(outputs, taught).detach())
    optimiser = torch.optim.Adam([outputs], 0.05)
    for _ in range(300):
        optimiser.zero_grad()
        value = loss(outputs, taught)
        value.backward()
        optimiser.step()
    assert float(value.detach()) < before / 10
    unit, right = (torch.nn.functional.normalize(x, dim=1) for x in (outputs, taught))
    nearest = (unit @ unit.T - 2 * torch.eye(40)).argmax(1)
    assert (nearest == (right @ right.T - 2 * torch.eye(40)).argmax(1)).all()


def test_half_precision_and_descriptors_of_zeros_stay_finite(device: torch.device) -> None:
    outputs = torch.randn(8, 6, device=device)
    outputs[2] = 0
    outputs = outputs.to(torch.bfloat16).requires_grad_()
    taught = torch.randn(8, 4, device=device).to(torch.bfloat16)
    taught[5] = 0
    with torch.autocast(device.type, torch.bfloat16):
        loss = DistillationLoss("real", "real")(outputs, taught)
    (gradient,) = torch.autograd.grad(loss, outputs)
    exact = DistillationLoss("real", "real")(outputs.double(), taught.double())
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-6)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(("one", "other"), [((4, 3), (5, 3)), ((1, 3), (1, 3)), ((4,), (4,))])
def test_other_shapes_are_refused(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="the same two or more patches"):
        DistillationLoss("real", "real")(torch.randn(one), torch.randn(other))
