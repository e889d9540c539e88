"""The definition against exact AP of sorted lists, the paper's appendix and finite differences."""

import pytest
import torch
from torch import Tensor

from doap.evaluation.metrics.average_precision import average_precision
from doap.objectives import AveragePrecisionLoss
from doap.objectives.average_precision import (
    dense_histograms,
    euclidean_distances,
    hamming_distances,
    pool_histograms,
    relaxed_average_precision,
    relaxed_descriptors,
    soft_histogram,
)
from doap.types import Kind


def test_distances_have_the_bounds_and_slopes_of_the_formulas() -> None:
    unit = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [1, 0]], dtype=torch.float64, requires_grad=True)
    distances = euclidean_distances(unit, unit)
    expected = torch.tensor([0, 2**0.5, 2, 0], dtype=torch.float64)
    torch.testing.assert_close(distances[0], expected)
    (gradient,) = torch.autograd.grad(distances[0, 3], unit, retain_graph=True)
    assert gradient.abs().max() == 0
    (gradient,) = torch.autograd.grad(distances[0, 1], unit)
    torch.testing.assert_close(gradient[0], -unit[1].detach() / 2**0.5)  # ∂D/∂F(x) = -F(x') / D
    bits = torch.tensor([[1.0, 1, -1], [1, -1, 1], [-1, -1, 1]])
    assert hamming_distances(bits).tolist() == [[0, 2, 3], [2, 0, 1], [3, 1, 0]]


def test_soft_histogram_is_the_triangular_kernel() -> None:
    distances = torch.rand(5, 40, dtype=torch.float64) * 2
    distances[0, :3] = torch.tensor([0, 2, 0.8])
    weights = torch.rand(5, 40, dtype=torch.float64)
    centres = torch.arange(11, dtype=torch.float64) * 0.2
    kernel = (1 - (distances[..., None] - centres).abs() / 0.2).relu()
    torch.testing.assert_close(soft_histogram(distances, weights, 10, 0.2), (kernel * weights[..., None]).sum(1))


def test_an_output_of_zeros_stays_zero_without_a_slope() -> None:
    outputs = torch.tensor([[0.0, 0], [3, 4]], requires_grad=True)
    unit = relaxed_descriptors(outputs, "real")
    torch.testing.assert_close(unit, torch.tensor([[0, 0], [0.6, 0.8]]))
    (gradient,) = torch.autograd.grad(unit.sum(), outputs)
    assert gradient[0].tolist() == [0, 0]
    torch.testing.assert_close(gradient[1], torch.tensor([0.8 * 0.04, -0.6 * 0.04]))


def exact(distances: Tensor, groups: Tensor) -> Tensor:
    """Return the exact, tie-aware AP of each query by sorting."""
    others = ~torch.eye(len(groups), dtype=torch.bool)
    relevant = groups[:, None] == groups[None]
    rows = zip(distances, relevant, others, strict=True)
    return torch.tensor([average_precision(d[o].numpy(), r[o].numpy()) for d, r, o in rows])


def test_equals_exact_ap_when_every_bin_centre_holds_one_item() -> None:
    # Points on a half circle whose chords from the first, the query, are whole multiples of the bin width.
    bins = 20
    chords = torch.arange(bins + 1, dtype=torch.float64) * 2 / bins
    angles = 2 * torch.asin(chords / 2)
    outputs = torch.stack((angles.cos(), angles.sin()), 1)
    for trial in range(5):
        groups = (torch.rand(bins + 1, generator=torch.Generator().manual_seed(trial)) < 0.4).long()
        groups[0] = groups[5]
        precisions, _ = AveragePrecisionLoss("real", bins).average_precisions(outputs, groups)
        expected = average_precision(chords[1:].numpy(), (groups[1:] == groups[0]).numpy())
        assert float(precisions[0]) == pytest.approx(expected, abs=1e-9)


def test_binary_bits_follow_the_simplified_tie_aware_formula() -> None:
    # Saturated bits have integer distances: soft counts are exact counts.
    signs = torch.randint(0, 2, (30, 12), dtype=torch.float64) * 2 - 1
    groups = torch.arange(30) // 3
    precisions, _ = AveragePrecisionLoss("binary").average_precisions(signs * 40, groups)
    distances = (12 - signs @ signs.T) / 2
    for i in range(30):
        total, before, before_all = 0.0, 0.0, 0.0
        for k in range(13):
            at = distances[i] == k
            at[i] = False
            here, here_all = float((at & (groups == groups[i])).sum()), float(at.sum())
            total += here * (2 * before + here + 1) / (2 * before_all + here_all + 1)
            before, before_all = before + here, before_all + here_all
        assert float(precisions[i]) == pytest.approx(total / 2, abs=1e-12)


def test_more_bins_approach_the_exact_ap() -> None:
    outputs = torch.randn(120, 6, dtype=torch.float64)
    outputs += 2 * outputs[::4].repeat_interleave(4, 0)
    groups = torch.arange(120) // 4
    unit = relaxed_descriptors(outputs, "real")
    expected = exact(euclidean_distances(unit, unit), groups)
    errors = [
        float((AveragePrecisionLoss("real", bins).average_precisions(outputs, groups)[0] - expected).abs().mean())
        for bins in (4, 16, 64, 4096)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 2e-3  # not 0: an item is spread over two bins, however narrow


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_gradient_is_the_appendix_written_out(kind: Kind) -> None:
    """∂AP/∂h by finite differences of the formula, then the paper's chain rule to the outputs."""
    outputs = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    groups = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    bins = 6
    (gradient,) = torch.autograd.grad(AveragePrecisionLoss(kind, bins)(outputs, groups), outputs)
    raw = outputs.detach()
    if kind == "real":
        lengths = raw.norm(dim=1)
        descriptors, width = raw / lengths[:, None], 2 / bins
    else:
        descriptors, width = raw.tanh(), 4 / bins
    matches, ranked = dense_histograms(descriptors, groups, kind, bins)
    grad_descriptors = torch.zeros_like(raw)
    for q in range(7):
        grad_bins = torch.zeros(2, bins + 1, dtype=torch.float64)
        for which in range(2):
            for k in range(bins + 1):
                step = torch.zeros(2, 1, bins + 1, dtype=torch.float64)
                step[which, 0, k] = 1e-6
                ahead, behind = (
                    _unnormalised(matches[q : q + 1] + sign * step[0], ranked[q : q + 1] + sign * step[1])
                    for sign in (1, -1)
                )
                grad_bins[which, k] = (ahead - behind) / 2e-6 / ((groups == groups[q]).sum() - 1)
        for x in range(7):
            if x == q:
                continue
            product = descriptors[q] @ descriptors[x]
            distance = (2 - 2 * product).sqrt() if kind == "real" else (4 - product) / 2
            grad_distance = 0.0
            for k in range(bins + 1):
                offset = float(distance) - k * width
                kernel_slope = (-1 if offset > 0 else 1) / width if abs(offset) < width else 0.0
                grad_bin = grad_bins[1, k] + (grad_bins[0, k] if groups[x] == groups[q] else 0)
                grad_distance += kernel_slope * float(grad_bin)
            slope = -1 / distance if kind == "real" else -0.5
            grad_descriptors[q] += grad_distance * slope * descriptors[x]
            grad_descriptors[x] += grad_distance * slope * descriptors[q]
    if kind == "real":
        radial = (descriptors * grad_descriptors).sum(1, keepdim=True)
        expected = (grad_descriptors - descriptors * radial) / lengths[:, None]
    else:
        expected = grad_descriptors * (1 - descriptors.square())
    torch.testing.assert_close(gradient, -expected / 7, rtol=1e-6, atol=1e-9)


def _unnormalised(matches: Tensor, ranked: Tensor) -> float:
    cumulative_matches, cumulative_ranked = matches.cumsum(1), ranked.cumsum(1)
    return float((matches * (2 * cumulative_matches - matches + 1) / (2 * cumulative_ranked - ranked + 1)).sum())


def test_pooled_lists_are_sums_of_their_queries() -> None:
    histograms = torch.rand(6, 4)
    pools = torch.tensor([7, -1, 7, 3, 3, 7])
    torch.testing.assert_close(pool_histograms(histograms, None), histograms.sum(0, keepdim=True))
    expected = torch.stack([histograms[1], histograms[3] + histograms[4], histograms[[0, 2, 5]].sum(0)])
    torch.testing.assert_close(pool_histograms(histograms, pools), expected)


def test_a_list_without_a_match_scores_zero() -> None:
    value = relaxed_average_precision(torch.zeros(1, 5), torch.ones(1, 5))
    assert value.tolist() == [0]
