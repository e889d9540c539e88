"""The distillation losses against their definitions."""

import pytest
import torch
from torch import Tensor

from doap.objectives import ImitationLoss, SimilarityLoss
from doap.types import Kind

KINDS = pytest.mark.parametrize("kind", ["real", "binary"])
KIND_PAIRS = [("real", "real"), ("real", "binary"), ("binary", "real"), ("binary", "binary")]


def cosine(one: Tensor, other: Tensor) -> Tensor:
    similarity: Tensor = (one * other).sum() / (one.norm() * other.norm())
    return similarity


def textbook_imitation(outputs: Tensor, teacher_outputs: Tensor, kind: Kind) -> Tensor:
    """Compute `ImitationLoss` patch by patch."""

    def similarity(student: Tensor, teacher: Tensor) -> Tensor:
        if kind == "real":
            return cosine(student, teacher)
        soft = student.tanh()
        differences = [(1 - value if bit > 0 else 1 + value) / 2 for value, bit in zip(soft, teacher, strict=True)]
        return 1 - 2 * torch.stack(differences).sum() / len(student)

    return 1 - torch.stack([similarity(*both) for both in zip(outputs, teacher_outputs, strict=True)]).mean()


def textbook_similarity(outputs: Tensor, teacher_outputs: Tensor, kind: Kind, teacher_kind: Kind) -> Tensor:
    """Compute `SimilarityLoss` pair by pair."""

    def student(a: Tensor, b: Tensor) -> Tensor:
        return cosine(a, b) if kind == "real" else (a.tanh() * b.tanh()).sum() / len(a)

    def teacher(a: Tensor, b: Tensor) -> float:
        if teacher_kind == "real":
            return float(cosine(a, b))
        hamming = int(((a > 0) != (b > 0)).sum())
        return 1 - 2 * hamming / len(a)

    patches = range(len(outputs))
    differences = [
        student(outputs[i], outputs[j]) - teacher(teacher_outputs[i], teacher_outputs[j])
        for i in patches
        for j in patches
        if i != j
    ]
    return torch.stack(differences).square().mean()


def assert_same(loss: Tensor, expected: Tensor, outputs: Tensor) -> None:
    (gradient,) = torch.autograd.grad(loss, outputs)
    (expected_gradient,) = torch.autograd.grad(expected, outputs)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-12)
    assert expected_gradient.abs().max() > 1e-3


def lists(dimensions: int) -> tuple[Tensor, Tensor]:
    """Return outputs of student and teacher, with two equal descriptors and some zeros of the teacher."""
    outputs = torch.randn(9, 16, dtype=torch.float64)
    outputs[3] = outputs[4]
    teacher_outputs = torch.randn(9, dimensions, dtype=torch.float64)
    teacher_outputs[2, :3] = 0
    return outputs.requires_grad_(), teacher_outputs


@KINDS
def test_imitation_is_its_definition(kind: Kind) -> None:
    outputs, teacher_outputs = lists(16)
    assert_same(
        ImitationLoss(kind)(outputs, teacher_outputs), textbook_imitation(outputs, teacher_outputs, kind), outputs
    )


@pytest.mark.parametrize(("kind", "teacher_kind"), KIND_PAIRS)
def test_similarity_is_its_definition(kind: Kind, teacher_kind: Kind) -> None:
    outputs, teacher_outputs = lists(24)
    expected = textbook_similarity(outputs, teacher_outputs, kind, teacher_kind)
    assert_same(SimilarityLoss(kind, teacher_kind)(outputs, teacher_outputs), expected, outputs)


@pytest.mark.parametrize("loss", [ImitationLoss("real"), ImitationLoss("binary"), SimilarityLoss("real", "real")])
def test_no_gradient_flows_to_the_teacher(loss: ImitationLoss | SimilarityLoss) -> None:
    teacher_outputs = torch.randn(4, 8, requires_grad=True)
    loss(torch.randn(4, 8, requires_grad=True), teacher_outputs).backward()
    assert teacher_outputs.grad is None


def test_a_student_like_its_teacher_has_nothing_to_learn() -> None:
    teacher_outputs = torch.randn(300, 128)
    rotation, _ = torch.linalg.qr(torch.randn(128, 128))
    scaled = (3 * teacher_outputs).requires_grad_()  # invariant to length
    rotated = (3 * teacher_outputs @ rotation).requires_grad_()  # similarities are invariant to rotation
    for loss, outputs in ((ImitationLoss("real"), scaled), (SimilarityLoss("real", "real"), rotated)):
        value = loss(outputs, teacher_outputs)
        (gradient,) = torch.autograd.grad(value, outputs)
        assert abs(float(value.detach())) < 1e-6
        assert gradient.abs().max() < 1e-7
    bits = 20 * teacher_outputs.sign()
    assert abs(float(ImitationLoss("binary")(bits, teacher_outputs))) < 1e-6
    assert float(ImitationLoss("binary")(-bits, teacher_outputs)) == pytest.approx(2)
    assert abs(float(SimilarityLoss("binary", "binary")(bits, teacher_outputs))) < 1e-6


def test_descending_makes_a_student_rank_as_its_teacher() -> None:
    teacher_outputs = torch.randn(40, 64)
    teacher_outputs[::2] += 2 * teacher_outputs[1::2]  # some are similar
    outputs = torch.randn(40, 24).requires_grad_()
    loss = SimilarityLoss("real", "real")
    before = float(loss(outputs, teacher_outputs).detach())
    optimiser = torch.optim.Adam([outputs], 0.05)
    for _ in range(300):
        optimiser.zero_grad()
        value = loss(outputs, teacher_outputs)
        value.backward()
        optimiser.step()
    assert float(value.detach()) < before / 10
    student, teacher = (torch.nn.functional.normalize(x, dim=1) for x in (outputs, teacher_outputs))
    nearest = (student @ student.T - 2 * torch.eye(40)).argmax(1)
    assert (nearest == (teacher @ teacher.T - 2 * torch.eye(40)).argmax(1)).all()


@pytest.mark.parametrize("loss", [ImitationLoss("real"), ImitationLoss("binary"), SimilarityLoss("binary", "real")])
def test_half_precision_and_descriptors_of_zeros_stay_finite(
    loss: ImitationLoss | SimilarityLoss, device: torch.device
) -> None:
    outputs = torch.randn(8, 6, device=device)
    outputs[2] = 0
    outputs = outputs.to(torch.bfloat16).requires_grad_()
    teacher_outputs = torch.randn(8, 6, device=device).to(torch.bfloat16)
    teacher_outputs[5] = 0
    with torch.autocast(device.type, torch.bfloat16):
        value = loss(outputs, teacher_outputs)
    (gradient,) = torch.autograd.grad(value, outputs)
    torch.testing.assert_close(value.double(), loss(outputs.double(), teacher_outputs.double()), rtol=1e-5, atol=1e-6)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(("one", "other"), [((4, 3), (5, 3)), ((4, 3), (4, 5)), ((0, 3), (0, 3)), ((4,), (4,))])
def test_imitation_needs_equal_shapes(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must have the same shape"):
        ImitationLoss("real")(torch.randn(one), torch.randn(other))


@pytest.mark.parametrize(("one", "other"), [((4, 3), (5, 3)), ((1, 3), (1, 3)), ((4,), (4,))])
def test_similarity_needs_lists_of_the_same_patches(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="of the same patches, two or more"):
        SimilarityLoss("real", "real")(torch.randn(one), torch.randn(other))
