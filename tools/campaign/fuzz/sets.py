"""Patch sets, frame sets, official sets and archives of them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from campaign.fuzz.formats import Format, file_in, text_file
from doap import PatchSet
from doap.datasets.build.look_alike import read_record
from doap.datasets.build.steps import load_frames
from doap.datasets.download.unpacking import unpack
from doap.datasets.label_mining.mining import MinedLabels
from doap.datasets.official.hpatches_tasks import read_retrieval_list, read_splits, read_verification_pairs
from doap.datasets.official.image_sequences import read_homography
from doap.datasets.official.phototour import convert_phototour, read_pairs
from doap.datasets.official.romepatches import read_mat
from doap.datasets.sets.frame_set import FrameSet
from doap.evaluation.hpatches.csv_descriptors import read_descriptors
from doap.images.reconstruction.photo_features import PhotoRecord
from doap.images.reconstruction.tracks import PhotoPair, load_pairs, save_pairs
from support.sets.hostile_archives import tarred, zipped
from support.sets.official_formats import write_mat5, write_mat73
from support.sets.small_frame_set import FrameSetMaker, add_singles, add_static, crop_photo
from support.sets.small_phototour import PAIRS, learnable_phototour
from support.trainings import noisy_patches

MEMBERS = {"top/one.txt": b"one", "top/deep/two.txt": b"two" * 300}
XML = """<?xml version="1.0"?>
<opencv_storage>
<H13 type_id="opencv-matrix"><rows>3</rows><cols>3</cols><dt>d</dt>
<data>1.1 2e-2 3. 4e-3 9.9e-1 -6. 7e-6 8e-6 1.</data></H13>
</opencv_storage>
"""
SPLITS = '{"a": {"name": "a", "train": ["v_one", "i_two"], "test": ["v_three"]}, "full": {"name": "f", "test": ["v"]}}'


def _patches() -> PatchSet:
    return noisy_patches(points=12, views=2, sequences=3)


def _patch_set(folder: Path) -> None:
    _patches().save(folder / "set")


def _read_patch_set(file: Path) -> list[NDArray[np.generic]]:
    PatchSet.verify(file.parent)
    patches = PatchSet.open(file.parent)
    return [patches.groups, patches.sequences, patches.take(np.arange(len(patches)))]


def _frame_set(folder: Path) -> None:
    maker = FrameSetMaker()
    add_static(maker, "set/static", 0)
    add_singles(maker, "set/single", 2)
    maker.frame_set().save(folder / "set")


def _read_frame_set(file: Path) -> list[NDArray[np.generic]]:
    FrameSet.verify(file.parent)
    frames = FrameSet.open(file.parent)
    photos = [frames.read_photo(index) for index in range(len(frames.photo_names))]
    return [frames.groups, frames.photos, frames.frames, *photos]


def _mined(folder: Path) -> Path:
    data = _patches()
    sequences, clusters = 3, 4
    labels = MinedLabels(
        data.sequences * clusters + np.arange(len(data)) % clusters,
        torch.eye(clusters, dtype=torch.bool).repeat(sequences, 1, 1),
        np.full(sequences, 0.5, np.float32),
        None,
    )
    labels.save(folder / "labels.npz", data)
    return folder / "labels.npz"


def _read_mined(file: Path) -> object:
    return MinedLabels.load(file, _patches()).clusters


def _photo_record(folder: Path) -> Path:
    PhotoRecord.of_image(crop_photo(0), 20).save(folder / "photo.npz")
    return folder / "photo.npz"


def _pairs_of_photos(folder: Path) -> Path:
    save_pairs(folder / "pairs.npz", [PhotoPair(0, 1, np.arange(8).reshape(4, 2), True)])
    return folder / "pairs.npz"


def _scene_frames(folder: Path) -> Path:
    ids = np.arange(4)
    values = {"source": "views", "note": "", "photos": ids, "groups": ids, "angles": ids / 2}
    arrays: dict[str, Any] = {**values, "frames": np.ones((4, 2, 3), np.float32), "overlaps": ids.reshape(2, 2)}
    np.savez(folder / "frames.npz", **arrays)
    return folder / "frames.npz"


def _phototour(folder: Path) -> None:
    learnable_phototour(folder / "liberty", points=4, pairs=8)


def _convert_phototour(file: Path) -> None:
    target = file.parents[1] / "converted"
    shutil.rmtree(target, ignore_errors=True)
    convert_phototour(file.parent, target)


def _matlab(write: Callable[..., None]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        write(folder / "a.mat", labels=np.arange(12.0)[None], patches=np.arange(2 * 9, dtype=np.uint8).reshape(3, 3, 2))
        return folder / "a.mat"

    return make


def _read_mat(file: Path) -> list[NDArray[np.generic]]:
    variables = read_mat(file)
    return [np.asarray(value) for value in variables.values()]


def _archive(name: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content())
        return folder / name

    return make


def _unpack(file: Path) -> list[tuple[str, bytes]]:
    target = file.parent / "unpacked"
    shutil.rmtree(target, ignore_errors=True)
    unpack(file, target, max_bytes=1_000_000, max_members=50)
    escaped = [path for path in file.parent.iterdir() if path not in (file, target)]
    if escaped:
        raise AssertionError(f"written outside the folder: {escaped[0].name}")
    return sorted((str(p.relative_to(target)), p.read_bytes()) for p in target.rglob("*") if p.is_file())


def set_formats() -> list[Format]:
    """Return the formats of data sets."""
    patch_arrays = ("groups.npy", "sequences.npy", "checksums.npy", "patches-00000.npy")
    frame_arrays = ("frames.npy", "photos.npy", "picture_starts.npy", "photos-00000.npy")
    return [
        Format("patch-set-manifest", file_in(_patch_set, "set/set.json"), _read_patch_set, is_text=True),
        *(
            Format(f"patch-set-{Path(name).stem}", file_in(_patch_set, f"set/{name}"), _read_patch_set, is_checked=True)
            for name in patch_arrays
        ),
        Format("frame-set-manifest", file_in(_frame_set, "set/set.json"), _read_frame_set, is_text=True),
        *(
            Format(f"frame-set-{Path(name).stem}", file_in(_frame_set, f"set/{name}"), _read_frame_set, is_checked=True)
            for name in frame_arrays
        ),
        Format("mined-labels", _mined, _read_mined),
        Format("build-photo", _photo_record, PhotoRecord.load),
        Format("build-pairs", _pairs_of_photos, load_pairs),
        Format("build-frames", _scene_frames, load_frames),
        Format("phototour-info", file_in(_phototour, "liberty/info.txt"), _convert_phototour, is_text=True),
        Format(
            "phototour-pairs", file_in(_phototour, f"liberty/{PAIRS}"), lambda file: read_pairs(file, 12), is_text=True
        ),
        Format("mat-5", _matlab(write_mat5), _read_mat),
        Format("mat-7.3", _matlab(write_mat73), _read_mat),
        Format("hpatches-splits", text_file("splits.json", SPLITS), read_splits, is_text=True),
        Format(
            "hpatches-retrieval", text_file("r.csv", "s,idx\nv_a,1\nv_b,2\nv_a,0\n"), read_retrieval_list, is_text=True
        ),
        Format(
            "hpatches-verification",
            text_file("v.csv", "s1,t1,idx1,s2,t2,idx2\nv_a,0,1,v_b,2,3\nv_a,1,1,v_a,5,0\n"),
            read_verification_pairs,
            is_text=True,
        ),
        Format("hpatches-descriptors", text_file("ref.csv", "1,2,3\n4,5.5,6e-3\n"), read_descriptors, is_text=True),
        Format("homography", text_file("H_1_2", "1 0.1 3\n0 1 2\n1e-5 0 1\n"), read_homography, is_text=True),
        Format("homography-xml", text_file("H.xml", XML), read_homography, is_text=True),
        Format(
            "look-alike-record",
            text_file("look-alike.json", '{"settings": {"seed": 1}, "source": {"a": 1}, "sets": {"x": {"n": 2}}}'),
            lambda file: read_record(file.parent),
            is_text=True,
        ),
        Format("zip", _archive("a", lambda: zipped(MEMBERS)), _unpack),
        Format("tar", _archive("a", lambda: tarred(MEMBERS, "w:")), _unpack),
        Format("tar.gz", _archive("a", lambda: tarred(MEMBERS)), _unpack),
        Format("tar.bz2", _archive("a", lambda: tarred(MEMBERS, "w:bz2")), _unpack, is_checked=True),
        Format("tar.xz", _archive("a", lambda: tarred(MEMBERS, "w:xz")), _unpack, is_checked=True),
    ]
