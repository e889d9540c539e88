"""The fused histograms against the textbook, values and gradients, on every device."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from doap.objectives import AveragePrecisionLoss, IgnoreTable, tiled_histograms
from doap.objectives.average_precision import dense_histograms, relaxed_descriptors
from doap.objectives.fused import fused_histograms
from doap.objectives.lists import RankedLists
from doap.types import Kind
from support.textbook import textbook_histograms, textbook_loss


def random_ignore(items: int, labels: int, share: float) -> IgnoreTable:
    table = torch.rand(labels, labels) < share
    return IgnoreTable(torch.randint(0, labels, (items,)), table | table.T)


# Outputs, groups, kind, bins, ignored pairs, weight of the pools, and pools.
LossCase = tuple[Tensor, Tensor, Kind, int, IgnoreTable | None, float, Tensor | None]


@st.composite
def batches(draw: st.DrawFn) -> LossCase:
    items = draw(st.integers(2, 30))
    dimensions = draw(st.integers(2, 9))
    torch.manual_seed(draw(st.integers(0, 2**31)))
    outputs = torch.randn(items, dimensions, dtype=torch.float64)
    if draw(st.booleans()):  # duplicates: distance 0
        outputs = outputs[torch.randint(0, items, (items,))]
    groups = torch.randint(0, draw(st.integers(1, items)), (items,))
    groups[-1] = groups[0]
    ignore = random_ignore(items, draw(st.integers(1, 6)), draw(st.floats(0, 1))) if draw(st.booleans()) else None
    pools = torch.randint(0, 4, (items,)) if draw(st.booleans()) else None
    kind: Kind = draw(st.sampled_from(["real", "binary"]))
    return outputs, groups, kind, draw(st.integers(1, 60)), ignore, draw(st.sampled_from([0.0, 0.7])), pools


def value_and_gradient(loss: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    return loss.detach(), torch.autograd.grad(loss, outputs)[0]


@settings(max_examples=40, deadline=None)
@given(batch=batches(), size=st.sampled_from([3, 7, 512]))
def test_equals_the_textbook(batch: LossCase, size: int) -> None:
    outputs, groups, kind, bins, ignore, pooled_weight, pools = batch
    outputs = outputs.requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiled_histograms, "_tile_size", lambda _: size)
        fused = AveragePrecisionLoss(kind, bins, pooled_weight)(outputs, groups, ignore, pools)
        value, gradient = value_and_gradient(fused, outputs)
    expected_value, expected = value_and_gradient(
        textbook_loss(outputs, groups, kind, bins, ignore, pooled_weight, pools), outputs
    )
    torch.testing.assert_close(value, expected_value, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", ["real", "binary"])
@pytest.mark.parametrize("bins", [1, 10, 25, 200])
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("items", [65, 700])
def test_equals_the_definition_on_every_device(
    kind: Kind, bins: int, ignored: bool, items: int, device: torch.device
) -> None:
    outputs = torch.randn(items, 24, device=device, requires_grad=True)
    groups = torch.randint(0, items // 3, (items,), device=device)
    ignore = random_ignore(items, 9, 0.3) if ignored else None
    computed = AveragePrecisionLoss(kind, bins).histograms(outputs, groups, ignore)
    exact = outputs.detach().double().cpu().requires_grad_()
    expected = dense_histograms(relaxed_descriptors(exact, kind), groups.cpu(), kind, bins, ignore)
    weights = torch.randn(2, *expected[0].shape, dtype=torch.float64)
    for one, other in zip(computed, expected, strict=True):
        torch.testing.assert_close(one.double().cpu(), other, rtol=1e-4, atol=2e-3)
    (gradient,) = torch.autograd.grad(computed, outputs, tuple(weights.to(outputs)))
    (expected_gradient,) = torch.autograd.grad(expected, exact, tuple(weights))
    # In single precision a distance may fall on the other side of a bin centre, where the slope jumps.
    error = (gradient.double().cpu() - expected_gradient).norm() / expected_gradient.norm()
    assert float(error) < 0.02


@pytest.mark.parametrize("kind", ["real", "binary"])
@pytest.mark.parametrize("bin_power", [None, 1.5])
def test_gradcheck(kind: Kind, bin_power: float | None) -> None:
    outputs = torch.randn(12, 5, dtype=torch.float64, requires_grad=True)
    groups = torch.arange(12) // 3
    ignore = random_ignore(12, 4, 0.5)
    loss = AveragePrecisionLoss(kind, 7, pooled_weight=0.5, bin_power=bin_power)
    assert torch.autograd.gradcheck(lambda x: loss(x, groups, ignore), outputs, eps=1e-7, atol=1e-6)


def test_rows_of_the_list_are_the_rows_of_the_whole() -> None:
    descriptors = relaxed_descriptors(torch.randn(50, 6, dtype=torch.float64), "real")
    groups = torch.randint(0, 12, (50,)).sort().values
    whole = RankedLists("real", 9, 2 / 9, groups, random_ignore(50, 5, 0.3), range(50))
    all_matches, all_ranked = tiled_histograms.histograms(descriptors, whole)
    grad_matches, grad_ranked = torch.randn(2, 50, 10, dtype=torch.float64)
    all_gradient = tiled_histograms.descriptor_gradient(descriptors, whole, grad_matches, grad_ranked)
    for rows in (range(13), range(13, 31), range(31, 50), range(20, 20)):
        some = RankedLists("real", 9, 2 / 9, groups, whole.ignore, rows)
        matches, ranked = tiled_histograms.histograms(descriptors, some)
        torch.testing.assert_close(matches, all_matches[rows.start : rows.stop])
        torch.testing.assert_close(ranked, all_ranked[rows.start : rows.stop])
        gradient = tiled_histograms.descriptor_gradient(descriptors, some, grad_matches, grad_ranked)
        torch.testing.assert_close(gradient, all_gradient[rows.start : rows.stop])


def test_histograms_equal_the_textbook_in_the_order_of_the_batch() -> None:
    outputs = torch.randn(30, 5, dtype=torch.float64)
    groups = torch.randint(0, 8, (30,))
    computed = fused_histograms(relaxed_descriptors(outputs, "real"), groups, "real", 11)
    for one, other in zip(computed, textbook_histograms(outputs, groups, "real", 11, None), strict=True):
        torch.testing.assert_close(one, other)


def test_is_deterministic(device: torch.device) -> None:
    outputs = torch.randn(900, 32, device=device, requires_grad=True)
    groups = torch.arange(900, device=device) // 3
    loss = AveragePrecisionLoss("real", pooled_weight=1.0)
    torch.use_deterministic_algorithms(True)
    try:
        first, *others = (value_and_gradient(loss(outputs, groups), outputs) for _ in range(3))
    finally:
        torch.use_deterministic_algorithms(False)
    default = value_and_gradient(loss(outputs, groups), outputs)
    torch.testing.assert_close(default, first, rtol=1e-3, atol=1e-6)
    for other in others:
        assert torch.equal(first[0], other[0])
        assert torch.equal(first[1], other[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_outputs_keep_their_type(dtype: torch.dtype, device: torch.device) -> None:
    outputs = torch.randn(60, 16, device=device).to(dtype).requires_grad_()
    groups = torch.arange(60) // 3
    value, gradient = value_and_gradient(AveragePrecisionLoss("real")(outputs, groups), outputs)
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    widened = outputs.detach().float().requires_grad_()
    expected, expected_gradient = value_and_gradient(AveragePrecisionLoss("real")(widened, groups), widened)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, expected_gradient.to(dtype))


def test_autocast_changes_nothing(device: torch.device) -> None:
    outputs = torch.randn(80, 16, device=device, requires_grad=True)
    groups = torch.arange(80) // 4
    for ignore in (None, torch.zeros(80, 80, dtype=torch.bool)):
        loss = AveragePrecisionLoss("real", pooled_weight=1.0)
        expected = value_and_gradient(loss(outputs, groups, ignore), outputs)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            inside = loss(outputs, groups, ignore)
        torch.testing.assert_close(value_and_gradient(inside, outputs), expected)


def test_compiled_caller_gets_equal_numbers(device: torch.device) -> None:
    loss = AveragePrecisionLoss("real", pooled_weight=0.5)
    outputs = torch.randn(40, 8, device=device, requires_grad=True)
    groups = torch.arange(40, device=device) // 2

    def step(outputs: Tensor, groups: Tensor) -> Tensor:
        value: Tensor = 3 * loss(outputs * 2, groups)
        return value

    compiled = torch.compile(step, backend="aot_eager")
    computed = value_and_gradient(compiled(outputs, groups), outputs)
    torch.testing.assert_close(computed, value_and_gradient(step(outputs, groups), outputs))


def test_non_contiguous_outputs(device: torch.device) -> None:
    wide = torch.randn(10, 60, device=device, dtype=torch.float64)
    groups = torch.arange(30) // 2
    transposed = wide[:, ::2].T.requires_grad_()
    assert not transposed.is_contiguous()
    plain = transposed.detach().contiguous().requires_grad_()
    loss = AveragePrecisionLoss("real")
    computed = value_and_gradient(loss(transposed, groups), transposed)
    torch.testing.assert_close(computed, value_and_gradient(loss(plain, groups), plain))


class StorageWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the bytes of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return result


def test_holds_no_square_tensor() -> None:
    items = 3000
    outputs = torch.randn(items, 8, requires_grad=True)
    with StorageWatch() as watch:
        AveragePrecisionLoss("real", pooled_weight=1.0)(outputs, torch.zeros(items, dtype=torch.int64)).backward()
    assert 0 < watch.largest < 4 * items * items / 8
