"""Numbers at their limits: the result of a plain computation in float64, or one line."""

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from campaign.findings import Finding, PartResult, Say
from doap import AveragePrecisionLoss, DoapError, PatchSet, mutual_nearest, nearest
from doap.evaluation.metrics.average_precision import average_precision

INT64 = np.iinfo(np.int64)
MANY = 1_000_000
REFUSABLE = ("nan", "infinity", "largest")

Check = Callable[[], None]
Floats = NDArray[np.float32]


def check_numbers(seed: int, say: Say) -> PartResult:
    """Run all checks."""
    result = PartResult("numbers", "values at the limits, in matching, objectives and sets", {"seed": seed})
    replay = f"python -m campaign numbers --seed {seed}"
    for where, checks in _checks(seed).items():
        wrong = refused = 0
        begin = time.monotonic()
        for name, check in checks:
            try:
                check()
            except (DoapError, ValueError) as error:
                refused += 1
                problem = _refusal_problem(name, str(error))
            except Exception as error:
                problem = f"{type(error).__name__}: {str(error)[:300]}"
            else:
                problem = ""
            if problem:
                wrong += 1
                say(f"{where}, {name}: {problem}")
                result.findings.append(Finding(f"{where}, {name}", problem, replay))
        seconds = round(time.monotonic() - begin, 1)
        result.counts.append(
            {"where": where, "cases": len(checks), "one line": refused, "findings": wrong, "seconds": seconds}
        )
    return result


def _refusal_problem(name: str, line: str) -> str:
    """Return what is wrong with a refusal: several lines, or values that are not to be refused; '' for nothing."""
    if "\n" in line:
        return f"an error of several lines: {line}"
    return "" if any(word in name for word in REFUSABLE) else f"refused: {line}"


def _checks(seed: int) -> dict[str, list[tuple[str, Check]]]:
    random = np.random.default_rng(seed)
    return {
        "matching": [
            (f"{name}, {size} items", _matching(values))
            for size in (1, 2, 7, 300)
            for name, values in _descriptors(random, size)
        ],
        "matching bits": [
            ("all equal", _bits(np.zeros((200, 32), np.uint8))),
            ("all ones", _bits(np.full((200, 32), 255, np.uint8))),
            ("duplicated", _bits(np.repeat(random.integers(0, 256, (50, 32), dtype=np.uint8), 4, 0))),
        ],
        "objectives": [
            (f"{kind}, {name}, {labels}", _loss(kind, values, groups))
            for kind in ("real", "binary")
            for name, values in _descriptors(random, 24)
            for labels, groups in _groups(24)
        ],
        "average precision": [(name, _average_precision(distances)) for name, distances in _distances(random)],
        "sets": [("a group of a million patches", _large_group), ("labels at the limits", _extreme_labels)],
    }


def _descriptors(random: np.random.Generator, size: int) -> Iterator[tuple[str, Floats]]:
    """Yield descriptors by name."""
    plain = random.normal(size=(size, 16)).astype(np.float32)
    plain /= np.linalg.norm(plain, axis=1, keepdims=True)
    yield "plain", plain
    yield "constant", np.full_like(plain, 0.25)
    yield "zero", np.zeros_like(plain)
    yield "duplicated", plain[np.arange(size) // 2]
    yield "denormal", plain * np.float32(1e-40)
    yield "tiny", plain * np.float32(1e-20)
    yield "huge", plain * np.float32(1e18)
    yield "largest", np.sign(plain) * np.finfo(np.float32).max
    yield "mixed scales", plain * np.float32(10) ** random.integers(-30, 15, (size, 1)).astype(np.float32)
    yield "far from the origin", plain + np.float32(1000)
    for name, value in (("nan", np.nan), ("infinity", np.inf), ("minus infinity", -np.inf)):
        damaged = plain.copy()
        damaged[size // 2, 3] = value
        yield name, damaged


def _matching(values: Floats) -> Check:
    def check() -> None:
        exact = values.astype(np.float64)
        if not np.isfinite(exact).all():
            nearest(values, values)
            raise AssertionError("values that are not finite were matched")
        indices, distances = nearest(values, values[::-1].copy())
        table = np.linalg.norm(exact[:, None] - exact[None, ::-1], axis=2)
        _same(distances, table.min(1), "distances", exact)
        _same(table[np.arange(len(indices)), indices], table.min(1), "distances of the indices", exact)
        pairs, _ = mutual_nearest(values, values)
        assert len(pairs) == len(np.unique(pairs[:, 0])) == len(np.unique(pairs[:, 1])), "a match is repeated"

    return check


def _same(computed: NDArray[np.float64], expected: NDArray[np.float64], what: str, values: NDArray[np.float64]) -> None:
    """Compare up to the rounding of float32, relative to the largest value."""
    assert np.isfinite(computed).all(), f"{what} are not finite"
    bound = 2e-3 * max(np.abs(values).max(initial=0), np.finfo(np.float32).tiny)
    worst = np.abs(computed - expected).max(initial=0)
    assert worst <= bound, f"{what} differ by {worst:g}"


def _bits(values: NDArray[np.uint8]) -> Check:
    def check() -> None:
        _, distances = nearest(values, values)
        assert (distances == 0).all(), "a descriptor is not at distance 0 of itself"

    return check


def _groups(size: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    pairs = np.arange(size) // 2
    yield "pairs", pairs
    yield "labels at the limits of int64", np.where(pairs % 2 == 0, INT64.min + pairs, INT64.max - pairs)
    yield "one group", np.zeros(size, np.int64)


def _loss(kind: str, values: Floats, groups: NDArray[np.int64]) -> Check:
    def check() -> None:
        loss = AveragePrecisionLoss(kind)  # type: ignore[arg-type]
        outputs = torch.from_numpy(values.copy()).requires_grad_()
        value = loss(outputs, torch.from_numpy(groups))
        relabelled = loss(outputs, torch.from_numpy(np.unique(groups, return_inverse=True)[1]))
        assert torch.equal(value, relabelled) or (value.isnan() and relabelled.isnan()), "labels change the loss"
        if np.isnan(values).any():
            assert value.isnan(), "NaN outputs have a loss"
        elif np.isfinite(values).all():
            assert value.isfinite(), f"finite outputs have the loss {value.item()}"
            value.backward()
            gradient = outputs.grad
            assert gradient is not None
            assert gradient.isfinite().all(), "finite outputs have gradients that are not finite"

    return check


def _distances(random: np.random.Generator) -> Iterator[tuple[str, NDArray[np.float64]]]:
    plain = random.uniform(0, 2, 100)
    yield "plain", plain
    yield "constant", np.ones(100)
    yield "denormal", plain * 1e-310
    yield "infinity", np.where(np.arange(100) == 3, np.inf, plain)
    yield "nan", np.where(np.arange(100) == 3, np.nan, plain)


def _average_precision(distances: NDArray[np.float64]) -> Check:
    def check() -> None:
        value = average_precision(distances, np.arange(100) % 3 == 0)
        assert 0 <= value <= 1, f"an AP of {value}"
        if (distances == distances[0]).all():
            assert abs(value - 0.34) < 0.05, f"an AP of {value} where order is chance"

    return check


def _large_group() -> None:
    patches = PatchSet([np.zeros((MANY, 2, 2), np.uint8)], np.zeros(MANY, np.int64), np.zeros(MANY, np.int64))
    assert len(patches) == MANY
    assert patches.take(np.array([0, MANY - 1])).shape == (2, 2, 2)
    repr(patches)


def _extreme_labels() -> None:
    groups = np.array([INT64.min, INT64.min, INT64.max, INT64.max])
    patches = PatchSet([np.zeros((4, 8, 8), np.uint8)], groups, np.zeros(4, np.int64))
    assert len(patches) == 4
