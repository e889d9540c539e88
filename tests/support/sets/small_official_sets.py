"""Small data sets in the official formats, with random pixels."""

import json
from pathlib import Path

import h5py
import numpy as np
from PIL import Image
from scipy.io import savemat

STRIPS = ["ref", "e1", "e2", "e3", "e4", "e5", "h1", "h2", "h3", "h4", "h5", "t1", "t2", "t3", "t4", "t5"]


def save_noise(path: Path, height: int, width: int, channels: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = sum(path.name.encode()) + sum(path.parent.name.encode())
    shape = (height, width) if channels == 1 else (height, width, channels)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)).save(path)


def make_phototour(folder: Path, patches: int = 300, pairs: int = 40) -> Path:
    for sheet in range(-(-patches // 256)):
        save_noise(folder / f"patches{sheet:04}.bmp", 1024, 1024)
    (folder / "info.txt").write_text("".join(f"{n // 3} 0\n" for n in range(patches)))
    rows = "".join(f"{n} {n // 3} 0 {n + 1} {(n + 1) // 3} 0 0\n" for n in range(pairs))
    (folder / "m50_100000_100000_0.txt").write_text(rows)
    return folder


def make_hpatches(folder: Path, names: tuple[str, ...] = ("i_one", "v_two", "v_three"), patches: int = 3) -> Path:
    for name in names:
        for strip in STRIPS:
            save_noise(folder / name / f"{strip}.png", 65 * patches, 65)
    return folder


def make_sequences(folder: Path, names: tuple[str, ...] = ("i_one", "v_two")) -> Path:
    for name in names:
        for number in range(1, 7):
            save_noise(folder / name / f"{number}.ppm", 20, 30, 3)
            if number > 1:
                (folder / name / f"H_1_{number}").write_text("1 0 0\n0 1 0\n0 0 1\n")
    return folder


def make_tasks(folder: Path, splits: tuple[str, ...] = ("a", "full")) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "splits.json").write_text(json.dumps({name: {"name": name, "test": ["i_one"]} for name in splits}))
    for name in splits:
        for kind in ("verif_pos", "verif_neg_intra", "verif_neg_inter"):
            (folder / f"{kind}_split-{name}.csv").write_text("s1,t1,idx1,s2,t2,idx2\ni_one,0,1,i_one,2,1\n")
        for kind in ("retr_queries", "retr_distractors"):
            (folder / f"{kind}_split-{name}.csv").write_text("s,idx\ni_one,1\n")
    return folder


def make_rome(folder: Path, patches: int = 20, hdf5: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, half in enumerate(("train", "test")):
        pixels = np.random.default_rng(number).integers(0, 256, (51, 51, patches), dtype=np.uint8)
        labels = np.arange(patches, dtype=np.float64)[None] // 10
        stem = folder / f"patch_retrieval_Rome_{half}"
        if hdf5:
            for path, name, values in ((f"{stem}.mat", "patches", pixels), (f"{stem}_labels.mat", "labels", labels)):
                with h5py.File(path, "w", userblock_size=512) as file:
                    file[name] = values.T
        else:
            savemat(f"{stem}.mat", {"patches": pixels}, do_compression=True)
            savemat(f"{stem}_labels.mat", {"labels": labels})
    return folder


def make_oxford(folder: Path) -> Path:
    for name in ("bark", "bikes", "boat", "graf", "leuven", "trees", "ubc", "wall"):
        suffix, channels = ("pgm", 1) if name == "boat" else ("ppm", 3)
        for number in range(1, 7):
            save_noise(folder / name / f"img{number}.{suffix}", 12, 16, channels)
            if number > 1:
                (folder / name / f"H1to{number}p").write_text("1 0 0\n0 1 0\n0 0 1\n")
    return folder
