import pytest
import torch
from torch import Tensor

from doap.objectives import DistillationLoss, Kind

KINDS = pytest.mark.parametrize("kind", ["real", "binary"])


def slow(outputs: Tensor, taught: Tensor, kind: Kind) -> Tensor:
    """The definition, patch by patch."""

    def similarity(student: Tensor, teacher: Tensor) -> Tensor:
        if kind == "real":
            return torch.dot(student, teacher) / (student.norm() * teacher.norm())
        soft = student.tanh()
        hamming = sum((1 - value if bit > 0 else 1 + value) / 2 for value, bit in zip(soft, teacher, strict=True))
        return 1 - 2 * hamming / len(student)

    return 1 - torch.stack([similarity(*both) for both in zip(outputs, taught, strict=True)]).mean()


@KINDS
def test_value_and_gradient_are_those_of_the_definition(kind: Kind) -> None:
    outputs = torch.randn(9, 16, dtype=torch.float64, requires_grad=True)
    taught = torch.randn(9, 16, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        taught[2, :3] = 0  # no bit: what is not above 0 is 0
    loss, expected = DistillationLoss(kind)(outputs, taught), slow(outputs, taught.detach(), kind)
    (gradient,) = torch.autograd.grad(loss, outputs)
    (right,) = torch.autograd.grad(expected, outputs)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, right, rtol=1e-9, atol=1e-12)
    assert right.abs().max() > 1e-3


@KINDS
def test_no_gradient_flows_to_the_teacher(kind: Kind) -> None:
    taught = torch.randn(4, 8, requires_grad=True)
    DistillationLoss(kind)(torch.randn(4, 8, requires_grad=True), taught).backward()
    assert taught.grad is None


def test_a_student_like_its_teacher_has_nothing_to_learn() -> None:
    taught = torch.randn(300, 128)
    outputs = (3 * taught).requires_grad_()  # lengths do not matter
    loss = DistillationLoss("real")(outputs, taught)
    (gradient,) = torch.autograd.grad(loss, outputs)
    assert abs(float(loss.detach())) < 1e-6
    assert gradient.abs().max() < 1e-7
    assert abs(float(DistillationLoss("binary")(20 * taught.sign(), taught))) < 1e-6
    assert float(DistillationLoss("binary")(-20 * taught.sign(), taught)) == pytest.approx(2)


@KINDS
def test_half_precision_and_descriptors_of_zeros_stay_finite(kind: Kind, device: torch.device) -> None:
    outputs = torch.randn(8, 6, device=device)
    outputs[2] = 0
    outputs = outputs.to(torch.bfloat16).requires_grad_()
    taught = torch.randn(8, 6, device=device).to(torch.bfloat16)
    taught[5] = 0
    with torch.autocast(device.type, torch.bfloat16):
        loss = DistillationLoss(kind)(outputs, taught)
    (gradient,) = torch.autograd.grad(loss, outputs)
    exact = DistillationLoss(kind)(outputs.double(), taught.double())
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-6)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(("one", "other"), [((4, 3), (5, 3)), ((4, 3), (4, 5)), ((0, 3), (0, 3)), ((4,), (4,))])
def test_other_shapes_are_refused(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="the same patches the same dimensions"):
        DistillationLoss("real")(torch.randn(one), torch.randn(other))
