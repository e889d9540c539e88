"""Verification, matching and retrieval against loops over the definition, on descriptors with many ties."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from doap.datasets.official.hpatches_tasks import sequence_blocks
from doap.datasets.sets.patch_set import PatchSet
from doap.evaluation.harness.result import Score
from doap.evaluation.hpatches.lists import Pairs, RetrievalLists, sample_pairs, sample_queries
from doap.evaluation.hpatches.matching import matching
from doap.evaluation.hpatches.retrieval import pools_of, retrieval
from doap.evaluation.hpatches.verification import verification
from doap.evaluation.metrics.average_precision import average_precision
from doap.types import Descriptors, Progress
from support.slow_hpatches import KINDS, distances, patch_indices, slow_precision, slow_roc, small_set, some_codes

NOISES = {"easy": "e", "hard": "h", "tough": "t"}


def value(scores: list[Score], **conditions: object) -> float:
    (actual,) = [score for score in scores if all(score[key] == expected for key, expected in conditions.items())]
    return float(actual["value"] or 0) / 100


def strip_of(image: int, noise: str) -> str:
    return f"{NOISES[noise]}{image}" if image else "ref"


def slow_pairs(patches: PatchSet, codes: Descriptors, pairs: Pairs, noise: str) -> list[float]:
    at = patch_indices(patches)
    table = distances(codes, codes)
    found = []
    for a, b in zip(*(zip(p.sequences, p.images, p.rows, strict=True) for p in pairs), strict=True):
        first, second = (
            at[patches.sequence_names[sequence], strip_of(image, noise), row] for sequence, image, row in (a, b)
        )
        found.append(table[first, second])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_verification(kind: str) -> None:
    patches = small_set()
    codes = some_codes(kind, len(patches))
    lists = sample_pairs(patches, 0)
    assert lists
    scores = verification(torch.from_numpy(codes), patches, lists)
    assert len(scores) == 3 * 2 * 4
    for noise in NOISES:
        positive = slow_pairs(patches, codes, lists.positives, noise)
        for negatives, pairs in lists.negatives.items():
            far = slow_pairs(patches, codes, pairs, noise) + positive
            same = [False] * (len(far) - len(positive)) + [True] * len(positive)
            few = len(positive) + int(0.2 * len(positive))
            asked = {"condition": negatives, "noise": noise}
            exact = np.round(far, 11)
            actual = [
                value(scores, balance=b, rule=r, **asked)
                for b in ("balanced", "imbalanced")
                for r in ("official", "tie-aware")
            ]
            expected = [
                slow_roc(far, same),
                roc_auc_score(same, -exact),
                slow_precision(far[:few], same[:few]),
                average_precision(exact[:few], same[:few]),
            ]
            np.testing.assert_allclose(actual, expected, atol=1e-9)


def slow_matching(reference: Descriptors, other: Descriptors) -> tuple[float, float]:
    """Compute AP with the first of the nearest, and with one of the nearest at random."""
    near, is_first_correct, chance = [], [], []
    for row, far in enumerate(distances(reference, other)):
        nearest = np.flatnonzero(far - far.min() < 1e-11)
        near.append(round(far.min(), 11))
        is_first_correct.append(nearest[0] == row)
        chance.append((row in nearest) / len(nearest))
    return slow_precision(near, is_first_correct, len(near)), average_precision(near, chance, len(near))


def slow_sequences(patches: PatchSet, codes: Descriptors, noise: str) -> dict[str, Descriptors]:
    """Compute the mean AP by both rules of each sequence."""
    at = patch_indices(patches)
    found = {}
    for name, (_, rows) in sequence_blocks(patches).items():
        strips = [codes[[at[name, strip_of(image, noise), row] for row in range(rows)]] for image in range(6)]
        found[name] = np.mean([slow_matching(strips[0], other) for other in strips[1:]], axis=0)
    return found


@pytest.mark.parametrize("block_entries", [1 << 24, 30])
@pytest.mark.parametrize("kind", KINDS)
def test_matching(kind: str, block_entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doap.evaluation.hpatches.matching.BLOCK_ENTRIES", block_entries)
    patches = small_set({"i_a": 30, "v_b": 25, "v_c": 40})
    codes = some_codes(kind, len(patches))
    scores = matching(torch.from_numpy(codes), patches)
    for noise in NOISES:
        slow = slow_sequences(patches, codes, noise)
        viewpoint = (slow["v_b"] + slow["v_c"]) / 2
        expected = {"illumination": slow["i_a"], "viewpoint": viewpoint, "all": (slow["i_a"] + viewpoint) / 2}
        for condition, means in expected.items():
            actual = [value(scores, condition=condition, noise=noise, rule=rule) for rule in ("official", "tie-aware")]
            np.testing.assert_allclose(actual, means, atol=1e-9)


def test_matching_of_other_names_is_the_mean_over_sequences() -> None:
    patches = small_set({"bark": 6, "i_a": 5, "v_b": 7})
    codes = some_codes("bits", len(patches))
    scores = matching(torch.from_numpy(codes), patches)
    slow = slow_sequences(patches, codes, "hard")
    assert value(scores, condition="all", noise="hard", rule="tie-aware") == pytest.approx(
        np.mean(list(slow.values()), 0)[1]
    )
    assert value(scores, condition="viewpoint", noise="hard", rule="tie-aware") == pytest.approx(slow["v_b"][1])


def slow_retrieval(
    patches: PatchSet, codes: Descriptors, lists: RetrievalLists, noise: str, pool: int
) -> tuple[float, float]:
    """Compute the mean AP over queries by both rules: copies first, then distractors of other sequences as listed."""
    at = patch_indices(patches)
    found = []
    for query, row in zip(lists.queries.sequences, lists.queries.rows, strict=True):
        name = lists.queries.sequence_names[query]
        pooled = [at[name, strip_of(image, noise), row] for image in range(1, 6)]
        for sequence, other in zip(lists.distractors.sequences, lists.distractors.rows, strict=True):
            if lists.distractors.sequence_names[sequence] != name:
                pooled.append(at[lists.distractors.sequence_names[sequence], "ref", other])
        far = distances(codes[[at[name, "ref", row]]], codes[pooled[:pool]])[0].round(11)
        copies = [index < 5 for index in range(len(far))]
        found.append((slow_precision(far.tolist(), copies), average_precision(far, copies)))
    official, tie_aware = np.mean(found, axis=0)
    return float(official), float(tie_aware)


@pytest.mark.parametrize("kind", KINDS)
def test_retrieval(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doap.evaluation.hpatches.retrieval.OFFICIAL_POOLS", (10, 15, 20, 200))
    monkeypatch.setattr("doap.evaluation.hpatches.retrieval.CHUNK_SIZE", 3)
    patches = small_set({"i_a": 20, "v_b": 15, "v_c": 30})
    codes = some_codes(kind, len(patches))
    lists = sample_queries(patches, 0)
    assert lists
    scores = retrieval(torch.from_numpy(codes), patches, lists)
    assert {score["pool"] for score in scores} == {10, 15, 20, len(lists.distractors) + 5}
    for noise in NOISES:
        for pool in (10, 15, 20, len(lists.distractors) + 5):
            actual = [value(scores, noise=noise, pool=pool, rule=rule) for rule in ("official", "tie-aware")]
            np.testing.assert_allclose(actual, slow_retrieval(patches, codes, lists, noise, pool), atol=1e-9)


def test_a_constant_descriptor() -> None:
    """The official retrieval gives it everything, and the tie-aware rule what chance gives."""
    patches = small_set({"i_a": 20, "v_b": 15, "v_c": 30})
    codes = torch.ones(len(patches), 8)
    lists, pairs = sample_queries(patches, 0), sample_pairs(patches, 0)
    assert lists
    assert pairs
    scores = retrieval(codes, patches, lists)
    assert all(score["value"] == 100 for score in scores if score["rule"] == "official")
    assert all(float(score["value"] or 0) < 40 for score in scores if score["rule"] == "tie-aware")
    tie_aware = [score for score in verification(codes, patches, pairs) if score["rule"] == "tie-aware"]
    assert {score["value"] for score in tie_aware if score["balance"] == "balanced"} == {50}
    (row,) = [
        s
        for s in matching(codes, patches)
        if (s["condition"], s["noise"], s["rule"]) == ("viewpoint", "easy", "tie-aware")
    ]
    assert 0 < float(row["value"] or 0) < 5


@pytest.mark.parametrize(
    ("distractors", "pools"),
    [
        (20_000, [100, 500, 1000, 2000, 5000, 10_000, 15_000, 20_000]),
        (3333, [100, 500, 1000, 2000, 3338]),
        (2, [7]),
    ],
)
def test_pools(distractors: int, pools: list[int]) -> None:
    assert pools_of(distractors) == pools


def test_matching_of_an_official_sequence(official_sequence: PatchSet) -> None:
    """Means of 13x13 pixels: whole numbers in few dimensions, so that real patches tie."""
    patches = official_sequence
    pixels = patches.take(np.arange(len(patches))).reshape(-1, 5, 13, 5, 13)
    codes = (pixels.mean(axis=(2, 4)) // 8).reshape(len(patches), 25).astype(np.float32)
    scores = matching(torch.from_numpy(codes), patches)
    rows = len(patches) // 16
    strips = codes.reshape(16, rows, 25)
    for number, noise in enumerate(NOISES):
        slow = np.mean([slow_matching(strips[0], other) for other in strips[1 + 5 * number : 6 + 5 * number]], axis=0)
        actual = [value(scores, condition="all", noise=noise, rule=rule) for rule in ("official", "tie-aware")]
        np.testing.assert_allclose(actual, slow, atol=1e-9)


def record(steps: list[tuple[int, int]], done: int, total: int) -> None:
    """Append a call of a progress callback."""
    steps.append((done, total))


def test_progress_is_reported_to_the_end() -> None:
    patches = small_set()
    codes = torch.from_numpy(some_codes("bits", len(patches)))
    lists, pairs = sample_queries(patches, 0), sample_pairs(patches, 0)
    assert lists
    assert pairs
    works: list[Callable[[Progress], object]] = [
        lambda progress: verification(codes, patches, pairs, progress),
        lambda progress: matching(codes, patches, progress),
        lambda progress: retrieval(codes, patches, lists, progress),
    ]
    for work in works:
        steps: list[tuple[int, int]] = []
        work(partial(record, steps))
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1]
