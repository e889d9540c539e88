import io
import zipfile
import zlib
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.spatial.distance import pdist, squareform

from doap import AveragePrecisionLoss, DoapError, PatchSet
from doap.datasets.label_mining.hog import hog
from doap.datasets.label_mining.mining import MinedLabels, count_pairs, describe_appearance, mine_labels
from doap.datasets.label_mining.settings import MiningSettings
from doap.datasets.official.hpatches import read_strip
from doap.parsing.array_files import read_archive
from doap.types import Progress, no_progress


def mine(
    patches: PatchSet,
    clusters: int = 100,
    percentile: float = 20,
    seed: int = 0,
    progress: Progress = no_progress,
) -> MinedLabels:
    settings = MiningSettings(clusters, percentile, seed)
    return mine_labels(patches, lambda indices: torch.from_numpy(patches.take(indices)), settings, progress)


def stripes(count: int, angle: float, random: np.random.Generator) -> np.ndarray:
    """Return patches of noisy stripes with one orientation."""
    y, x = np.mgrid[:32, :32]
    phase = random.normal(0, 0.2, (count, 1, 1))
    wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) / 3 + phase)
    return np.asarray(128 + 80 * wave + random.normal(0, 5, (count, 32, 32))).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def patches() -> PatchSet:
    """Return two sequences of 120 patches in groups of three; stripes of kinds 0..3 in turn, 0 and 1 similar."""
    random = np.random.default_rng(0)
    angles = [0.0, 0.15, 0.8, 1.6]
    kinds = np.concatenate([stripes(60, angle, random) for angle in angles])
    order = np.arange(240).reshape(4, 20, 3).transpose(1, 0, 2).ravel()
    groups = np.arange(240) // 3
    return PatchSet([kinds[order]], groups, np.array([5, 9])[groups % 8 // 4], {"kind": groups % 4})


@pytest.fixture(scope="module")
def mined(patches: PatchSet) -> MinedLabels:
    return mine(patches, clusters=4, percentile=10)


def dense(mined: MinedLabels, patches: PatchSet, indices: np.ndarray) -> np.ndarray:
    """Return whether two patches ignore each other, (M, M), pair by pair."""
    near, per_sequence = mined.near.numpy(), mined.near.shape[1]
    ignored = np.zeros((len(indices), len(indices)), bool)
    for row, a in enumerate(indices):
        for column, b in enumerate(indices):
            if patches.sequences[a] == patches.sequences[b]:
                number, first = divmod(mined.clusters[a], per_sequence)
                ignored[row, column] = near[number, first, mined.clusters[b] % per_sequence]
    return ignored


def test_appearance_is_hog_and_pixels(photo: np.ndarray) -> None:
    patches = torch.from_numpy(photo.reshape(8, 64, 8, 64).swapaxes(1, 2).reshape(64, 64, 64).copy())
    vectors = describe_appearance(patches)
    assert vectors.shape == (64, 2240)
    torch.testing.assert_close(vectors[:, :1984], hog(patches.float() / 255).flatten(1))
    small = np.stack(
        [np.asarray(Image.fromarray(p.numpy()).resize((16, 16), Image.Resampling.BILINEAR)) for p in patches]
    )
    assert np.abs(vectors[:, 1984:].view(-1, 16, 16).numpy() * 255 - small).max() < 1.01


@pytest.mark.parametrize("size", [32, 65])
def test_appearance_of_any_size(size: int) -> None:
    assert describe_appearance(torch.randint(0, 256, (3, size, size), dtype=torch.uint8)).shape == (3, 2240)


def test_clusters_are_the_kinds_and_similar_ones_ignore_each_other(patches: PatchSet, mined: MinedLabels) -> None:
    kinds = patches.labels["kind"]
    for number, sequence in enumerate((5, 9)):
        here = patches.sequences == sequence
        of_kind = [np.unique(mined.clusters[here & (kinds == kind)]) for kind in range(4)]
        assert all(len(clusters) == 1 for clusters in of_kind)
        names = np.concatenate(of_kind) - 4 * number
        assert sorted(names) == [0, 1, 2, 3]
        near = mined.near[number].numpy()[names][:, names]
        expected = np.eye(4, dtype=bool)
        expected[0, 1] = expected[1, 0] = True  # below 10 % of six distances lies the smallest
        np.testing.assert_array_equal(near, expected)


@pytest.mark.parametrize("percentile", [0.0, 37.5, 100.0])
def test_the_threshold_is_a_percentile_of_the_distances_between_centres(patches: PatchSet, percentile: float) -> None:
    mined = mine(patches, 8, percentile, seed=3)
    points = describe_appearance(torch.from_numpy(patches.take(np.arange(len(patches))))).double().numpy()
    for number in range(2):
        members = [points[mined.clusters == 8 * number + k] for k in range(8)]
        distances = pdist(np.stack([m.mean(0) for m in members]))
        threshold = np.percentile(distances, percentile)
        assert mined.thresholds[number] == pytest.approx(threshold, rel=1e-3)
        away = np.abs(squareform(distances) - threshold) > 1e-3 * threshold
        near = mined.near[number].numpy()
        np.testing.assert_array_equal(near[away], (squareform(distances) <= threshold)[away])
        assert near.diagonal().all()


def test_the_table_of_a_batch_equals_the_dense_mask(patches: PatchSet, mined: MinedLabels) -> None:
    random = np.random.default_rng(0)
    one_sequence = np.flatnonzero(patches.sequences == 9)
    for indices in (random.integers(0, len(patches), 50), one_sequence[:30]):
        table = mined.ignore_table(indices)
        table.check(len(indices))
        assert len(table.table) == len(np.unique(mined.clusters[indices]))
        mask = table.table[table.labels][:, table.labels].numpy()
        np.testing.assert_array_equal(mask, dense(mined, patches, indices))
        different = patches.sequences[indices][:, None] != patches.sequences[indices]
        assert not mask[different].any()


def test_groups_match_though_their_patches_ignore_their_own_cluster(patches: PatchSet, mined: MinedLabels) -> None:
    indices = np.arange(24)
    outputs = torch.randn(24, 8, dtype=torch.float64, requires_grad=True)
    groups = torch.from_numpy(patches.groups[indices])
    loss = AveragePrecisionLoss("real")
    _, has_match = loss.average_precisions(outputs, groups, mined.ignore_table(indices))
    assert has_match.all()
    by_table = loss(outputs, groups, mined.ignore_table(indices))
    by_mask = loss(outputs, groups, torch.from_numpy(dense(mined, patches, indices)))
    torch.testing.assert_close(by_table, by_mask)
    torch.testing.assert_close(*(torch.autograd.grad(value, outputs)[0] for value in (by_table, by_mask)))


def test_pairs_are_counted_correctly(patches: PatchSet) -> None:
    mined = mine(patches, clusters=7, percentile=40, seed=1)
    negatives, ignored = count_pairs(mined, patches)
    for number, sequence in enumerate((5, 9)):
        indices = np.flatnonzero(patches.sequences == sequence)
        mask = dense(mined, patches, indices)
        pairs = [
            bool(mask[a, b])
            for a, b in combinations(range(len(indices)), 2)
            if patches.groups[indices[a]] != patches.groups[indices[b]]
        ]
        assert (negatives[number], ignored[number]) == (len(pairs) - sum(pairs), sum(pairs))


def test_the_seed_fixes_the_labels(patches: PatchSet) -> None:
    one, same, other = (mine(patches, 20, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.clusters, same.clusters)
    assert torch.equal(one.near, same.near)
    assert not np.array_equal(one.clusters, other.clusters)


def test_sequences_with_fewer_patches_than_clusters() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8)
    few = PatchSet([pixels], [0, 0, 1, 1, 2], [0, 0, 0, 0, 1])
    calls: list[tuple[int, int]] = []
    mined = mine(few, clusters=100, progress=lambda *done: calls.append(done))
    assert calls == [(4, 5), (5, 5)]
    assert len(np.unique(mined.clusters)) == 5
    table = mined.ignore_table(np.arange(5))
    assert table.table.diagonal().all()
    assert count_pairs(mined, few)[0].tolist()[1] == 0


def test_saved_and_loaded(patches: PatchSet, mined: MinedLabels, tmp_path: Path) -> None:
    mined.save(tmp_path / "mined.npz", patches)
    loaded = MinedLabels.load(tmp_path / "mined.npz", patches)
    np.testing.assert_array_equal(loaded.clusters, mined.clusters)
    np.testing.assert_array_equal(loaded.thresholds, mined.thresholds)
    assert torch.equal(loaded.near, mined.near)
    assert loaded.settings == MiningSettings(4, 10, 0)
    assert [p.name for p in tmp_path.iterdir()] == ["mined.npz"]


def write_version_1(path: Path, mined: MinedLabels, patches: PatchSet) -> None:
    """Write labels as version 0.2 did: without settings."""
    checksum = zlib.crc32(patches.sequences.tobytes(), zlib.crc32(patches.groups.tobytes()))
    np.savez_compressed(
        path,
        format=np.array("doap mined labels 1"),
        grouping=np.array(checksum),
        clusters=mined.clusters,
        near=mined.near.numpy(),
        thresholds=mined.thresholds,
    )


def test_version_1_is_read_and_written_again(patches: PatchSet, mined: MinedLabels, tmp_path: Path) -> None:
    write_version_1(tmp_path / "old.npz", mined, patches)
    old = MinedLabels.load(tmp_path / "old.npz", patches, MiningSettings(4, 77, 5))  # it records neither
    assert (old.settings, torch.equal(old.near, mined.near)) == (None, True)
    with pytest.raises(DoapError, match=r"mined with clusters 4, but the recipe has 5; .* --clusters 5, or change"):
        MinedLabels.load(tmp_path / "old.npz", patches, MiningSettings(5, 10))
    old.save(tmp_path / "again.npz", patches)
    again = MinedLabels.load(tmp_path / "again.npz", patches)
    assert (again.settings, torch.equal(again.near, mined.near)) == (None, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (MiningSettings(5, 10), "mined with clusters 4, but the recipe has 5"),
        (MiningSettings(4, 12.5), "mined with percentile 10, but the recipe has 12.5"),
        (MiningSettings(4, 10, 12345679), "mined with seed 0, but the recipe has 12345679; .*--seed 12345679,"),
    ],
)
def test_other_settings_are_one_line(
    patches: PatchSet, mined: MinedLabels, tmp_path: Path, settings: MiningSettings, message: str
) -> None:
    mined.save(tmp_path / "mined.npz", patches)
    MinedLabels.load(tmp_path / "mined.npz", patches, MiningSettings(4, 10))
    with pytest.raises(DoapError, match=message) as caught:
        MinedLabels.load(tmp_path / "mined.npz", patches, settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", ["missing", "text", "truncated", "foreign", "pickled", "other set", "name"])
def test_wrong_files_are_one_line(patches: PatchSet, mined: MinedLabels, tmp_path: Path, error: str) -> None:
    path = tmp_path / "mined.npz"
    if error == "name":
        with pytest.raises(DoapError, match=r"written as \.npz"):
            mined.save(tmp_path / "mined.txt", patches)
        return
    mined.save(path, patches)
    target: PatchSet = patches
    if error == "missing":
        path.unlink()
    elif error == "text":
        path.write_text("words")
    elif error == "truncated":
        path.write_bytes(path.read_bytes()[:150])
    elif error == "foreign":
        np.savez(path, clusters=np.zeros(3))
    elif error == "pickled":
        np.savez(path, clusters=np.array([{}], dtype=object))
    else:
        target = PatchSet(patches.shards, patches.groups // 2 * 2, patches.sequences * 0)
    with pytest.raises(DoapError, match=r"mined\.npz: ") as caught:
        MinedLabels.load(path, target)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("clusters", np.full(9, 10**6), "do not fit the set"),
        ("clusters", None, "do not fit the set"),  # all of the first sequence
        ("clusters", np.zeros((3, 3), np.int64), "do not fit the set"),
        ("near", np.zeros((2, 0, 0), bool), "do not fit the set"),
        ("near", np.array(True), "do not fit the set"),
        ("near", np.zeros((1, 4, 4), bool), "do not fit the set"),
        ("thresholds", np.zeros(99, np.float32), "do not fit the set"),
        ("grouping", np.zeros(3), "mined from another set"),
        ("settings", np.array('{"clusters": "x"}'), "its settings are damaged"),
    ],
)
def test_labels_out_of_range_are_one_line(
    patches: PatchSet, mined: MinedLabels, tmp_path: Path, name: str, values: NDArray[Any] | None, message: str
) -> None:
    mined.save(tmp_path / "mined.npz", patches)
    with np.load(tmp_path / "mined.npz") as archive:
        arrays = dict(archive)
    arrays[name] = np.zeros_like(arrays[name]) if values is None else values
    np.savez(tmp_path / "mined.npz", **arrays)
    with pytest.raises(DoapError, match=message) as caught:
        MinedLabels.load(tmp_path / "mined.npz", patches)
    assert "\n" not in str(caught.value)


def test_an_array_and_an_archive_of_gigabytes_are_no_labels(patches: PatchSet, tmp_path: Path) -> None:
    path = tmp_path / "mined.npz"
    np.save(path.open("wb"), np.zeros(3))
    with pytest.raises(DoapError, match=r"mined\.npz: not a file of mined labels"):
        MinedLabels.load(path, patches)
    header = io.BytesIO()
    description = {"descr": "<i8", "fortran_order": False, "shape": (10**11,)}
    np.lib.format.write_array_header_1_0(header, description)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("clusters.npy", header.getvalue())
    with pytest.raises(DoapError, match="0 of 800,000,000,000 bytes"):
        MinedLabels.load(path, patches)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("clusters.npy", bytes(1 << 21))
    with pytest.raises(ValueError, match="unpacks to more than 1,048,576 bytes"):
        read_archive(path, 1 << 20)


def test_real_patches_that_are_ignored_are_more_similar(hpatches_patches: Path) -> None:
    strips = [read_strip(hpatches_patches / "i_contruction" / f"{name}.png")[:150] for name in ("ref", "e1", "h3")]
    pixels = np.stack(strips, 1).reshape(-1, 65, 65)
    real = PatchSet([pixels], np.repeat(np.arange(150), 3))
    mined = mine(real, clusters=20)
    ignored = torch.from_numpy(dense(mined, real, np.arange(450)))
    different = torch.from_numpy(real.groups[:, None] != real.groups)
    # Measured independently of the clustering: the difference of the pixels.
    values = torch.from_numpy(pixels).flatten(1).float()
    apart = torch.cdist(values, values)
    assert apart[ignored & different].mean() < 0.8 * apart[~ignored & different].mean()
    assert 0.1 < float(ignored[different].float().mean()) < 0.4


@pytest.mark.gpu
def test_a_gpu_mines_and_makes_tables(patches: PatchSet, mined: MinedLabels) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    there = mine_labels(patches, lambda indices: torch.from_numpy(patches.take(indices)).cuda(), MiningSettings(4, 10))
    np.testing.assert_array_equal(there.clusters, mined.clusters)
    assert torch.equal(there.near, mined.near)
    indices = np.random.default_rng(0).integers(0, len(patches), 50)
    table = mined.to("cuda").ignore_table(indices)
    assert table.table.is_cuda
    assert torch.equal(table.table.cpu(), mined.ignore_table(indices).table)
