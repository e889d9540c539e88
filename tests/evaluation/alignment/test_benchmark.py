from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from doap import DoapError, PatchSet
from doap.datasets.sets.frame_set import FrameSet, encode
from doap.evaluation.alignment.benchmark import MAX_GROUPS, Alignment, Pixels, align, transformer_of
from doap.evaluation.alignment.figure import draw_alignment
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog
from doap.networks.architecture import Architecture, build_network
from doap.networks.descriptor import Descriptor, resize_patches
from doap.networks.spatial_transformer import Padding, TransformedNetwork
from doap.types import Grey
from support.figures import record_figures


def make_model(name: str, bias: list[float], padding: Padding = "replicate", bounded: bool = True) -> Descriptor:
    """Make a model that transforms every patch differently, on average by a bias."""
    architecture = Architecture(
        dimensions=8, width=4, transformer=True, transformer_padding=padding, transformer_bounded=bounded
    )
    network = build_network(architecture)
    assert isinstance(network, TransformedNetwork)
    with torch.no_grad():
        prediction = network.transformer.prediction
        torch.nn.init.normal_(prediction.weight, std=0.02)
        assert prediction.bias is not None
        prediction.bias += torch.tensor(bias)
    return Descriptor(network, "real", 12.0, name).eval()


@pytest.fixture
def model() -> Descriptor:
    """A model that zooms every patch out and shifts it, each differently."""
    return make_model("zooming", [1.0, 0, 0, 0, 1, 0])


@pytest.fixture
def zeros_model() -> Descriptor:
    """A model with zero padding that rotates by about a right angle, each patch differently."""
    return make_model("rotating", [-1.0, -1, 0, 1, -1, 0], padding="zeros", bounded=False)


@pytest.fixture
def patch_set(photo: Grey) -> PatchSet:
    """Groups of 1 to 20 patches: each the same patch, later ones with more noise."""
    plain = extract_patches(photo, detect_dog(photo, 60), 50, 12.0)
    sizes = np.arange(60) % 20 + 1
    groups = np.repeat(np.arange(60), sizes)
    random = np.random.default_rng(0)
    noisy = plain[groups] + random.normal(0, 12, (len(groups), 50, 50))
    order = random.permutation(len(groups))
    pixels = noisy.clip(0, 255).astype(np.uint8)[order]
    return PatchSet([pixels], groups[order] + 100, groups[order] % 2, sequence_names=["even", "odd"])


def in_numpy(groups: list[Pixels]) -> tuple[float, float]:
    """Compute the mean correlation within and between groups."""
    patches = np.concatenate(groups).astype(np.float64)
    correlations = np.asarray(np.corrcoef(patches.reshape(len(patches), -1)))
    labels = np.repeat(np.arange(len(groups)), list(map(len, groups)))
    same = labels[:, None] == labels
    pairs = [correlations[np.ix_(labels == g, labels == g)] for g in range(len(groups))]
    within = np.mean([c[~np.eye(len(c), dtype=bool)].mean() for c in pairs])
    return float(within), float(correlations[~same].mean())


def test_groups_are_aligned_by_the_models_transformer(model: Descriptor, patch_set: PatchSet) -> None:
    actual = align(model, patch_set)
    assert list(actual.rows) == ["original", "aligned, borders repeated", "aligned the same, zeros beyond"]
    transformer = transformer_of(model)
    for group in actual.groups[:5]:
        here = np.flatnonzero(patch_set.groups == group.number)
        read = resize_patches(torch.from_numpy(patch_set.take(here)), 42)[:, 0].round().clamp(0, 255)
        inputs = {patch.numpy().astype(np.uint8).tobytes() for patch in read}
        assert {patch.tobytes() for patch in group.originals} <= inputs
        assert group.sequence == ("even", "odd")[group.number % 2]
        with torch.no_grad():
            aligned = transformer(torch.from_numpy(group.originals)[:, None].float())[:, 0]
        # The originals are rounded, so places move a little.
        assert np.abs(group.aligned - aligned.numpy()).mean() < 1
        # Zoomed out, a margin lies beyond the patch, and only there it matters what is found.
        assert (group.aligned_zeros <= group.aligned).all()
        assert ((group.aligned_zeros == 0) & (group.aligned > 0)).mean() > 0.2
        np.testing.assert_array_equal(group.aligned[:, 12:20, 12:20], group.aligned_zeros[:, 12:20, 12:20])


def test_the_groups_with_the_most_patches_come_first_and_singles_never(model: Descriptor, patch_set: PatchSet) -> None:
    counts = [len(group.originals) for group in align(model, patch_set).groups]
    assert counts == sorted(np.minimum(np.arange(60) % 20 + 1, 16).tolist(), reverse=True)[: len(counts)]
    assert counts.count(16) == 15
    assert min(counts) == 2


def test_agreement_is_the_mean_correlation(model: Descriptor, patch_set: PatchSet) -> None:
    actual = align(model, patch_set)
    for measured, groups in (
        (actual.after, [group.aligned for group in actual.groups]),
        (actual.after_zeros, [group.aligned_zeros for group in actual.groups]),
    ):
        assert (measured.within, measured.between) == pytest.approx(in_numpy(groups), abs=2e-3)
    # Black borders are alike in all patches, whatever they show.
    assert actual.after_zeros.between > actual.after.between + 0.1


def test_a_second_model_aligns_the_third_row_by_itself(
    model: Descriptor, zeros_model: Descriptor, patch_set: PatchSet
) -> None:
    alone, both = align(model, patch_set), align(model, patch_set, zeros_model=zeros_model)
    assert (both.before, both.after) == (alone.before, alone.after)
    transformer = transformer_of(zeros_model)
    for one, two in zip(alone.groups[:5], both.groups[:5], strict=True):
        np.testing.assert_array_equal(two.originals, one.originals)
        np.testing.assert_array_equal(two.aligned, one.aligned)
        with torch.no_grad():
            aligned = transformer(torch.from_numpy(two.originals)[:, None].float())[:, 0]
        assert np.abs(two.aligned_zeros - aligned.numpy()).mean() < 1.5  # the originals are rounded
        assert np.abs(two.aligned_zeros - one.aligned_zeros.astype(float)).mean() > 20
    measured = both.after_zeros
    expected = in_numpy([group.aligned_zeros for group in both.groups])
    assert (measured.within, measured.between) == pytest.approx(expected, abs=2e-3)
    rows = list(both.rows.items())
    assert rows[0] == ("original", both.before)
    assert rows[1] == ("aligned, trained with repeated borders", both.after)
    assert rows[2] == ("aligned, trained with zero padding", both.after_zeros)


def test_two_models_need_the_paddings_of_their_rows(
    model: Descriptor, zeros_model: Descriptor, patch_set: PatchSet
) -> None:
    with pytest.raises(DoapError, match="zooming: give a model trained with transformer_padding: zeros here"):
        align(model, patch_set, zeros_model=model)
    with pytest.raises(DoapError, match="rotating: give a model trained with transformer_padding: replicate here"):
        align(zeros_model, patch_set, zeros_model=zeros_model)
    plain = Descriptor(build_network(Architecture(dimensions=8, width=2)), "real", 12.0, "plain")
    with pytest.raises(DoapError, match="plain: has no Spatial Transformer"):
        align(model, patch_set, zeros_model=plain)


def test_a_transformer_at_its_start_changes_nothing(patch_set: PatchSet) -> None:
    fresh = Descriptor(build_network(Architecture(dimensions=8, width=2, transformer=True)), "real", 12.0, "new").eval()
    actual = align(fresh, patch_set)
    for after in (actual.after, actual.after_zeros):
        assert (after.within, after.between) == pytest.approx((actual.before.within, actual.before.between), abs=1e-6)
    assert actual.before.within > 0.8 > actual.before.between


def test_alignment_that_undoes_a_shift_raises_agreement(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each group one patch is cut to the left of the point and one to the right, and the model knows it."""
    plain = extract_patches(photo, detect_dog(photo, 20), 60, 12.0)
    shifted = np.stack([plain[:, 9:51, 4:46], plain[:, 9:51, 14:56]], 1).reshape(40, 42, 42)
    patches = PatchSet([shifted], np.arange(40) // 2)
    network = build_network(Architecture(dimensions=8, width=2, transformer=True))
    assert isinstance(network, TransformedNetwork)
    model = Descriptor(network, "real", 12.0, "shifting").eval()
    signs = torch.tensor([1.0, -1.0]) * 10 / 42  # half of 10 pixels, in half-sides

    def undo(patches: torch.Tensor) -> torch.Tensor:
        transforms = torch.eye(2, 3).repeat(len(patches), 1, 1)
        transforms[:, 0, 2] = signs
        return transforms

    monkeypatch.setattr(network.transformer, "predict_transforms", undo)
    actual = align(model, patches)
    assert actual.after.within > actual.before.within + 0.1
    assert actual.after.within > 0.9


@pytest.fixture
def frames(photo: Grey) -> FrameSet:
    found = detect_dog(photo, 60)
    ids = np.arange(60)
    zeros = np.zeros(60, np.int64)
    return FrameSet([encode(photo)], ["camera"], zeros, found, ids // 3, zeros, zeros, ["camera"])


def test_frames_are_cut_as_jittered_views(model: Descriptor, frames: FrameSet) -> None:
    steps: list[tuple[str, int, int | None]] = []
    first = align(model, frames, 1, lambda *step: steps.append(step))
    again, other = align(model, frames, 1), align(model, frames, 2)
    assert len(first.groups) == 20 <= MAX_GROUPS
    assert all(group.originals.shape == (16, 42, 42) for group in first.groups)
    assert steps == [("decoding photos", 1, 1), *(("aligning groups", n, 20) for n in range(1, 21))]
    assert same(first, again)
    assert not same(first, other)


def same(first: Alignment, second: Alignment) -> bool:
    return first.before == second.before and all(
        a.number == b.number and np.array_equal(a.aligned, b.aligned)
        for a, b in zip(first.groups, second.groups, strict=True)
    )


def test_models_without_a_transformer_and_sets_without_groups_are_refused(
    model: Descriptor, patch_set: PatchSet
) -> None:
    plain = Descriptor(build_network(Architecture(dimensions=8, width=2)), "real", 12.0, "plain")
    with pytest.raises(DoapError, match="plain: has no Spatial Transformer"):
        align(plain, patch_set)
    singles = PatchSet([np.zeros((3, 42, 42), np.uint8)], [0, 1, 2])
    with pytest.raises(DoapError, match="no group of the set has two patches"):
        align(model, singles)


@pytest.mark.parametrize("columns", [1, 4])
def test_the_figure_shows_every_patch(
    model: Descriptor, patch_set: PatchSet, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alignment = align(model, patch_set)
    groups = alignment.groups[:columns]
    figures = record_figures(monkeypatch)
    draw_alignment(alignment, tmp_path / "figure.png", columns)
    sheets = [np.asarray(axes.images[0].get_array()) for axes in figures[0].axes]
    assert len(sheets) == 3 * columns
    for number, group in enumerate(groups):
        for sheet, patches in zip(
            sheets[3 * number :], (group.originals, group.aligned, group.aligned_zeros), strict=False
        ):
            shown = {window.tobytes() for window in windows(sheet, patches.shape[1])}
            assert {patch.tobytes() for patch in patches} <= shown
    texts = [text.get_text() for text in figures[0].texts]
    assert [f"group {group.number}, {len(group.originals)} patches" in texts for group in groups] == [True] * columns
    assert set(alignment.row_names) <= {text.replace("\n", " ") for text in texts}


def windows(sheet: Pixels, side: int) -> Iterator[Pixels]:
    """Yield the cells of a sheet of patches, which are separated by a line."""
    step = side + max(1, side // 16)
    for top in range(0, len(sheet), step):
        for left in range(0, len(sheet), step):
            yield np.ascontiguousarray(sheet[top : top + side, left : left + side])


def test_a_figure_in_an_unknown_format_is_refused(model: Descriptor, patch_set: PatchSet, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="figures are written as"):
        draw_alignment(align(model, patch_set), tmp_path / "figure.doc")
