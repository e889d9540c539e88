import pytest
import torch
from torch import Tensor

from doap.objectives import ImitationLoss, SimilarityLoss
from doap.types import Kind

KINDS = pytest.mark.parametrize("kind", ["real", "binary"])
BOTH = [("real", "real"), ("real", "binary"), ("binary", "real"), ("binary", "binary")]


def cosine(one: Tensor, other: Tensor) -> Tensor:
    return torch.dot(one, other) / (one.norm() * other.norm())


def imitation(outputs: Tensor, taught: Tensor, kind: Kind) -> Tensor:
    """The definition, patch by patch."""

    def similarity(student: Tensor, teacher: Tensor) -> Tensor:
        if kind == "real":
            return cosine(student, teacher)
        soft = student.tanh()
        hamming = sum((1 - value if bit > 0 else 1 + value) / 2 for value, bit in zip(soft, teacher, strict=True))
        return 1 - 2 * hamming / len(student)

    return 1 - torch.stack([similarity(*both) for both in zip(outputs, taught, strict=True)]).mean()


def likeness(outputs: Tensor, taught: Tensor, kind: Kind, teacher_kind: Kind) -> Tensor:
    """The definition, pair by pair."""

    def student(a: Tensor, b: Tensor) -> Tensor:
        return cosine(a, b) if kind == "real" else torch.dot(a.tanh(), b.tanh()) / len(a)

    def teacher(a: Tensor, b: Tensor) -> float:
        if teacher_kind == "real":
            return float(cosine(a, b))
        hamming = int(((a > 0) != (b > 0)).sum())
        return 1 - 2 * hamming / len(a)

    places = range(len(outputs))
    differences = [
        student(outputs[i], outputs[j]) - teacher(taught[i], taught[j]) for i in places for j in places if i != j
    ]
    return torch.stack(differences).square().mean()


def assert_same(loss: Tensor, expected: Tensor, outputs: Tensor) -> None:
    (gradient,) = torch.autograd.grad(loss, outputs)
    (right,) = torch.autograd.grad(expected, outputs)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, right, rtol=1e-9, atol=1e-12)
    assert right.abs().max() > 1e-3


def lists(dimensions: int) -> tuple[Tensor, Tensor]:
    """Of student and teacher; some patches are described alike, and some values of the teacher are no bits."""
    outputs = torch.randn(9, 16, dtype=torch.float64)
    outputs[3] = outputs[4]
    taught = torch.randn(9, dimensions, dtype=torch.float64)
    taught[2, :3] = 0
    return outputs.requires_grad_(), taught


@KINDS
def test_imitation_is_its_definition(kind: Kind) -> None:
    outputs, taught = lists(16)
    assert_same(ImitationLoss(kind)(outputs, taught), imitation(outputs, taught, kind), outputs)


@pytest.mark.parametrize(("kind", "teacher_kind"), BOTH)
def test_similarity_is_its_definition(kind: Kind, teacher_kind: Kind) -> None:
    outputs, taught = lists(24)
    expected = likeness(outputs, taught, kind, teacher_kind)
    assert_same(SimilarityLoss(kind, teacher_kind)(outputs, taught), expected, outputs)


@pytest.mark.parametrize("loss", [ImitationLoss("real"), ImitationLoss("binary"), SimilarityLoss("real", "real")])
def test_no_gradient_flows_to_the_teacher(loss: ImitationLoss | SimilarityLoss) -> None:
    taught = torch.randn(4, 8, requires_grad=True)
    loss(torch.randn(4, 8, requires_grad=True), taught).backward()
    assert taught.grad is None


def test_a_student_like_its_teacher_has_nothing_to_learn() -> None:
    taught = torch.randn(300, 128)
    turned, _ = torch.linalg.qr(torch.randn(128, 128))
    same = (3 * taught).requires_grad_()  # lengths do not matter
    alike = (3 * taught @ turned).requires_grad_()  # nor, to similarities, the choice of axes
    for loss, outputs in ((ImitationLoss("real"), same), (SimilarityLoss("real", "real"), alike)):
        value = loss(outputs, taught)
        (gradient,) = torch.autograd.grad(value, outputs)
        assert abs(float(value.detach())) < 1e-6
        assert gradient.abs().max() < 1e-7
    bits = 20 * taught.sign()
    assert abs(float(ImitationLoss("binary")(bits, taught))) < 1e-6
    assert float(ImitationLoss("binary")(-bits, taught)) == pytest.approx(2)
    assert abs(float(SimilarityLoss("binary", "binary")(bits, taught))) < 1e-6


def test_descending_makes_a_student_rank_as_its_teacher() -> None:
    taught = torch.randn(40, 64)
    taught[::2] += 2 * taught[1::2]  # some are alike
    outputs = torch.randn(40, 24).requires_grad_()
    loss = SimilarityLoss("real", "real")
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


@pytest.mark.parametrize("loss", [ImitationLoss("real"), ImitationLoss("binary"), SimilarityLoss("binary", "real")])
def test_half_precision_and_descriptors_of_zeros_stay_finite(
    loss: ImitationLoss | SimilarityLoss, device: torch.device
) -> None:
    outputs = torch.randn(8, 6, device=device)
    outputs[2] = 0
    outputs = outputs.to(torch.bfloat16).requires_grad_()
    taught = torch.randn(8, 6, device=device).to(torch.bfloat16)
    taught[5] = 0
    with torch.autocast(device.type, torch.bfloat16):
        value = loss(outputs, taught)
    (gradient,) = torch.autograd.grad(value, outputs)
    torch.testing.assert_close(value.double(), loss(outputs.double(), taught.double()), rtol=1e-5, atol=1e-6)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(("one", "other"), [((4, 3), (5, 3)), ((4, 3), (4, 5)), ((0, 3), (0, 3)), ((4,), (4,))])
def test_imitation_takes_alike_shapes(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="the same patches the same dimensions"):
        ImitationLoss("real")(torch.randn(one), torch.randn(other))


@pytest.mark.parametrize(("one", "other"), [((4, 3), (5, 3)), ((1, 3), (1, 3)), ((4,), (4,))])
def test_similarity_takes_lists_of_the_same_patches(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="the same two or more patches"):
        SimilarityLoss("real", "real")(torch.randn(one), torch.randn(other))
