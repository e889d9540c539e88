"""Each baseline against pytorch-metric-learning, or loops written from the formula of its paper."""

import math
from collections.abc import Callable

import pytest
import torch
from pytorch_metric_learning import distances, losses, reducers
from torch import Tensor, nn

from doap.objectives import (
    FastAPLoss,
    GlobalOrthogonalLoss,
    HardNetLoss,
    HistogramLoss,
    HyNetLoss,
    IgnoreTable,
    L2NetLoss,
    SmoothAPLoss,
    SOSNetLoss,
    TripletLoss,
)
from doap.objectives.baselines.pairs import make_pairs

BASELINES: list[Callable[[], nn.Module]] = [
    FastAPLoss,
    GlobalOrthogonalLoss,
    HardNetLoss,
    HistogramLoss,
    HyNetLoss,
    L2NetLoss,
    SmoothAPLoss,
    SOSNetLoss,
    TripletLoss,
]
# Groups of two as in the papers; and groups of one, two, three and five, shuffled.
TWOS = torch.arange(24) // 2
MIXED = torch.tensor([4, 0, 1, 4, 1, 0, 2, 1, 3, 3, 3, 5, 3, 3, 6, 6, 7, 7, 8, 8])
GROUPS = pytest.mark.parametrize("groups", [TWOS, MIXED], ids=["twos", "mixed"])


def table(groups: Tensor) -> IgnoreTable:
    """Return a table in which groups with numbers that differ by two ignore each other."""
    names = torch.arange(int(groups.max()) + 1)
    return IgnoreTable(groups, (names[:, None] - names).abs() == 2)


IGNORE = pytest.mark.parametrize("ignoring", [None, table], ids=["all", "ignoring"])


def negatives_of(groups: Tensor, ignoring: Callable[[Tensor], IgnoreTable] | None) -> Callable[[int, int], bool]:
    """Return a function that decides whether two patches are each other's negatives."""
    excluded = (0, 2) if ignoring else (0,)
    return lambda i, j: abs(int(groups[i] - groups[j])) not in excluded


def outputs_for(groups: Tensor) -> Tensor:
    """Return random outputs in which matches are closer than non-matches, none of length 1."""
    centres = torch.randn(int(groups.max()) + 1, 7, dtype=torch.float64)
    return (centres[groups] + 0.7 * torch.randn(len(groups), 7, dtype=torch.float64)).requires_grad_()


def assert_same(value: Tensor, expected: Tensor, outputs: Tensor, precision: float = 1e-9) -> None:
    """Compare values and gradients, which must not be all zero."""
    (gradient,) = torch.autograd.grad(value, outputs)
    (expected_gradient,) = torch.autograd.grad(expected, outputs)
    torch.testing.assert_close(value, expected, rtol=precision, atol=precision)
    torch.testing.assert_close(gradient, expected_gradient, rtol=100 * precision, atol=precision)
    assert float(expected_gradient.abs().max()) > 1e-4


def pairs_by_hand(groups: Tensor) -> list[tuple[int, int]]:
    pairs = []
    waiting: dict[int, int] = {}
    for i, group in enumerate(groups.tolist()):
        if group in waiting:
            pairs.append((waiting.pop(group), i))
        else:
            waiting[group] = i
    return pairs


def unit_vectors(outputs: Tensor) -> list[Tensor]:
    return [row / row.square().sum().sqrt() for row in outputs]


def distance(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).square().sum().sqrt()


def mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).mean()


Ignoring = Callable[[Tensor], IgnoreTable] | None


@GROUPS
def test_pairs_use_each_patch_once(groups: Tensor) -> None:
    pairs = make_pairs(groups)
    indices = set(zip(pairs.anchors.tolist(), pairs.positives.tolist(), strict=True))
    assert indices == set(pairs_by_hand(groups))
    assert torch.equal(groups[pairs.anchors], groups[pairs.positives])


@GROUPS
@IGNORE
def test_hardnet(groups: Tensor, ignoring: Ignoring) -> None:
    negative, ignore = negatives_of(groups, ignoring), ignoring and ignoring(groups)
    outputs = outputs_for(groups)
    unit, pairs = unit_vectors(outputs), pairs_by_hand(groups)
    terms = []
    for a, p in pairs:
        others = [(b, q) for b, q in pairs if negative(a, b)]
        negatives = [distance(unit[a], unit[q]) for _, q in others] + [distance(unit[b], unit[p]) for b, _ in others]
        terms.append((1 + distance(unit[a], unit[p]) - torch.stack(negatives).min()).relu())
    assert_same(HardNetLoss()(outputs, groups, ignore), mean(terms), outputs)


@GROUPS
@IGNORE
def test_l2net(groups: Tensor, ignoring: Ignoring) -> None:
    negative, ignore = negatives_of(groups, ignoring), ignoring and ignoring(groups)
    outputs = outputs_for(groups)
    unit, pairs = unit_vectors(outputs), pairs_by_hand(groups)
    loss = outputs.new_zeros(())
    for a, p in pairs:
        others = [(b, q) for b, q in pairs if negative(a, b)]
        match = (2 - distance(unit[a], unit[p])).exp()
        row = match + sum((2 - distance(unit[a], unit[q])).exp() for _, q in others)
        column = match + sum((2 - distance(unit[b], unit[p])).exp() for b, _ in others)
        loss = loss - ((match / row).log() + (match / column).log()) / 2
    for side in range(2):
        descriptors = torch.stack([unit[pair[side]] for pair in pairs])
        correlation = torch.corrcoef(descriptors.T)
        for k in range(7):
            for m in range(7):
                if k != m:
                    loss = loss + correlation[k, m] ** 2 / 2
    assert_same(L2NetLoss()(outputs, groups, ignore), loss / len(outputs), outputs)


@GROUPS
@IGNORE
@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_l2net_on_feature_maps(groups: Tensor, ignoring: Ignoring, scale: float) -> None:
    """The third term, which is the loss with a feature map less the loss without."""
    negative, ignore = negatives_of(groups, ignoring), ignoring and ignoring(groups)
    outputs, values = outputs_for(groups).detach(), outputs_for(groups)
    term, pairs = outputs.new_zeros(()), pairs_by_hand(groups)
    for a, p in pairs:
        others = [(b, q) for b, q in pairs if negative(a, b)]
        match = (scale * values[a] @ values[p]).exp()
        row = match + sum((scale * values[a] @ values[q]).exp() for _, q in others)
        column = match + sum((scale * values[b] @ values[p]).exp() for b, _ in others)
        term = term - ((match / row).log() + (match / column).log()) / 2
    loss, maps = L2NetLoss(), [values * scale**0.5, values * scale**0.5]
    difference = loss(outputs, groups, ignore, maps) - loss(outputs, groups, ignore)
    assert_same(difference, 2 * term / len(outputs), values)


def test_l2net_by_finite_differences() -> None:
    groups = torch.tensor([0, 0, 1, 2, 1, 2, 3, 3])
    outputs, maps = (torch.randn(8, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda x, f: L2NetLoss()(x, groups, None, [f, x]), (outputs, maps))


def test_l2net_with_products_far_beyond_the_range_of_exp() -> None:
    """Products of batch-normalised maps have the size of the map: 32,768 values after the first layer."""
    maps = (100 * torch.randn(24, 4096)).requires_grad_()
    outputs = torch.randn(24, 7, requires_grad=True)
    loss = L2NetLoss()(outputs, TWOS, None, [maps])
    gradients = torch.autograd.grad(loss, (outputs, maps))
    assert torch.isfinite(loss)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@GROUPS
@IGNORE
def test_triplet_with_anchor_swap(groups: Tensor, ignoring: Ignoring) -> None:
    negative, ignore = negatives_of(groups, ignoring), ignoring and ignoring(groups)
    outputs = outputs_for(groups)
    triplets = [(a, p, n) for a, p in pairs_by_hand(groups) for n in range(len(groups)) if negative(a, n)]
    reference = losses.TripletMarginLoss(
        margin=1.0, swap=True, distance=distances.LpDistance(normalize_embeddings=True), reducer=reducers.MeanReducer()
    )
    expected = reference(
        outputs, groups, indices_tuple=tuple(torch.tensor(column) for column in zip(*triplets, strict=True))
    )
    assert_same(TripletLoss()(outputs, groups, ignore), expected, outputs)


@GROUPS
@IGNORE
@pytest.mark.parametrize("crowded", [0.0, 2.0])  # both sides of the hinge on the second moment
def test_gor(groups: Tensor, crowded: float, ignoring: Ignoring) -> None:
    negative, ignore = negatives_of(groups, ignoring), ignoring and ignoring(groups)
    outputs = (outputs_for(groups).detach() + crowded).requires_grad_()
    unit = unit_vectors(outputs)
    products = [unit[i] @ unit[j] for i in range(len(unit)) for j in range(i) if negative(i, j)]
    first, second = mean(products), mean([product**2 for product in products])
    expected = TripletLoss()(outputs, groups, ignore) + 0.5 * (first**2 + (second - 1 / 7).relu())
    assert_same(GlobalOrthogonalLoss(weight=0.5)(outputs, groups, ignore), expected, outputs)


def hardest(unit: list[Tensor], pairs: list[tuple[int, int]], negative: Callable[[int, int], bool], i: int) -> Tensor:
    a, p = pairs[i]
    return torch.stack(
        [distance(unit[x], unit[y]) for b, q in pairs if negative(a, b) for x in (a, p) for y in (b, q)]
    ).min()


@GROUPS
@IGNORE
def test_sosnet(groups: Tensor, ignoring: Ignoring) -> None:
    negative, ignore = negatives_of(groups, ignoring), ignoring and ignoring(groups)
    outputs = outputs_for(groups)
    unit, pairs = unit_vectors(outputs), pairs_by_hand(groups)
    first_order, second_order = [], []
    for i, (a, p) in enumerate(pairs):
        first_order.append((1 + distance(unit[a], unit[p]) - hardest(unit, pairs, negative, i)).relu() ** 2)
        others = [j for j, (b, _) in enumerate(pairs) if negative(a, b)]
        near = set()
        for side, x in enumerate((a, p)):
            by_distance = sorted((distance(unit[x], unit[pairs[j][side]]).item(), j) for j in others)
            near |= {j for _, j in by_distance[:3]}
        differences = [distance(unit[a], unit[pairs[j][0]]) - distance(unit[p], unit[pairs[j][1]]) for j in near]
        second_order.append(torch.stack(differences).square().sum().sqrt())
    assert_same(SOSNetLoss(neighbours=3)(outputs, groups, ignore), mean(first_order) + mean(second_order), outputs)


@GROUPS
@IGNORE
def test_hynet(groups: Tensor, ignoring: Ignoring) -> None:
    negative, ignore = negatives_of(groups, ignoring), ignoring and ignoring(groups)
    outputs = outputs_for(groups)
    unit, pairs = unit_vectors(outputs), pairs_by_hand(groups)
    triplet, lengths = [], []
    for i, (a, p) in enumerate(pairs):
        positive, nearest = distance(unit[a], unit[p]), hardest(unit, pairs, negative, i)
        # d²/2 = 1 - s, with s the inner product
        triplet.append((1.2 + positive + 2 * positive**2 / 2 - nearest - 2 * nearest**2 / 2).relu())
        lengths.append((outputs[a].square().sum().sqrt() - outputs[p].square().sum().sqrt()) ** 2)
    assert_same(HyNetLoss()(outputs, groups, ignore), mean(triplet) + 0.1 * mean(lengths), outputs)


@GROUPS
@pytest.mark.parametrize("bins", [10, 25])
def test_fastap(groups: Tensor, bins: int) -> None:
    outputs = outputs_for(groups)
    assert_same(FastAPLoss(bins)(outputs, groups), losses.FastAPLoss(num_bins=bins)(outputs, groups), outputs)


@GROUPS
@IGNORE
def test_smoothap(groups: Tensor, ignoring: Ignoring) -> None:
    negative, ignore = negatives_of(groups, ignoring), ignoring and ignoring(groups)
    outputs = outputs_for(groups)
    unit = unit_vectors(outputs)
    precisions = []
    for q in range(len(unit)):
        similar = [unit[q] @ x for x in unit]
        others = [j for j in range(len(unit)) if j != q and (groups[j] == groups[q] or negative(q, j))]
        matches = [j for j in others if groups[j] == groups[q]]
        if not matches:
            continue
        total = outputs.new_zeros(())
        for i in matches:
            ahead = {j: 1 / (1 + ((similar[i] - similar[j]) / 0.05).exp()) for j in others if j != i}
            total = total + (1 + sum(ahead[j] for j in matches if j != i)) / (1 + sum(ahead.values()))
        precisions.append(total / len(matches))
    assert_same(SmoothAPLoss(0.05)(outputs, groups, ignore), 1 - mean(precisions), outputs)


@pytest.mark.parametrize("baseline", [baseline for baseline in BASELINES if baseline is not L2NetLoss])
def test_ignored_pairs_are_no_negatives(baseline: Callable[[], nn.Module]) -> None:
    """Two groups that ignore each other do not affect each other's gradient (but for L2-Net's correlations)."""
    groups = torch.arange(8) // 4
    outputs = outputs_for(groups)
    ignore = IgnoreTable(groups, torch.ones(2, 2, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(baseline()(outputs, groups, ignore), outputs)
    moved = outputs.detach().clone()
    moved[groups == 1] = moved[groups == 1].flip(1)  # same distances within the group
    moved.requires_grad_()
    (again,) = torch.autograd.grad(baseline()(moved, groups, ignore), moved)
    torch.testing.assert_close(again[groups == 0], gradient[groups == 0])


@GROUPS
def test_fastap_ignoring(groups: Tensor) -> None:
    outputs = outputs_for(groups)
    unit, negative = unit_vectors(outputs), negatives_of(groups, table)
    precisions = []
    for q in range(len(unit)):
        matches = [j for j in range(len(unit)) if groups[j] == groups[q] and j != q]
        listed = matches + [j for j in range(len(unit)) if negative(q, j)]
        if not matches:
            continue
        weights = {
            j: [(1 - (distance(unit[q], unit[j]) ** 2 / 0.4 - k).abs()).relu() for k in range(11)] for j in listed
        }
        total = outputs.new_zeros(())
        for k in range(11):
            correct, ranked = (sum(sum(weights[j][: k + 1]) for j in items) for items in (matches, listed))
            total = total + sum(weights[j][k] for j in matches) * correct / ranked if ranked > 0 else total
        precisions.append(total / len(matches))
    assert_same(FastAPLoss(10)(outputs, groups, table(groups)), 1 - mean(precisions), outputs)


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")  # within pytorch-metric-learning
@pytest.mark.parametrize("bins", [10, 100])
def test_histogram(bins: int) -> None:
    groups = MIXED[(MIXED != 5) & (MIXED != 2)]  # the reference omits pairs of two patches without a match
    outputs = outputs_for(groups)
    reference = losses.HistogramLoss(n_bins=bins)
    # The reference computes bin centres in single precision.
    assert_same(HistogramLoss(bins)(outputs, groups), reference(outputs, groups), outputs, precision=1e-5)


@pytest.mark.parametrize("baseline", BASELINES)
def test_baselines_survive_duplicates_constants_and_one_group(baseline: Callable[[], nn.Module]) -> None:
    twice = torch.randn(8, 6).repeat_interleave(2, 0)
    cases = [
        (twice, torch.arange(16) // 2),
        (torch.ones(16, 6), torch.arange(16) // 2),
        (torch.zeros(16, 6), torch.arange(16) // 2),
        (torch.randn(16, 6), torch.zeros(16, dtype=torch.int32)),
        (torch.randn(2, 6), torch.zeros(2, dtype=torch.int64)),
        (torch.randn(16, 6).to(torch.bfloat16), torch.arange(16) // 4),
    ]
    for outputs, groups in cases:
        outputs = outputs.requires_grad_()
        loss = baseline()(outputs, groups)
        (gradient,) = torch.autograd.grad(loss, outputs)
        assert loss.ndim == 0
        assert math.isfinite(float(loss.detach()))
        assert gradient.isfinite().all()


@pytest.mark.parametrize("baseline", BASELINES)
def test_gradients_of_baselines_agree_with_differences(baseline: Callable[[], nn.Module]) -> None:
    outputs = outputs_for(MIXED)
    loss = baseline()
    assert torch.autograd.gradcheck(lambda x: loss(x, MIXED), outputs, eps=1e-7, atol=1e-5)


@pytest.mark.parametrize("baseline", BASELINES)
def test_baselines_refuse_batches_without_a_match(baseline: Callable[[], nn.Module]) -> None:
    with pytest.raises(ValueError, match="no patch of this batch has a match"):
        baseline()(torch.randn(4, 3), torch.arange(4))
    with pytest.raises(ValueError, match="groups must be 4 integers"):
        baseline()(torch.randn(4, 3), torch.arange(3))


@pytest.mark.parametrize("baseline", BASELINES)
def test_baselines_run_on_every_device_and_under_autocast(
    baseline: Callable[[], nn.Module], device: torch.device
) -> None:
    outputs = outputs_for(TWOS).detach().float()
    expected = baseline()(outputs, TWOS)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        value = baseline()(outputs.to(device), TWOS)
    torch.testing.assert_close(value.cpu(), expected, rtol=1e-4, atol=1e-5)
