"""What the examples must print and leave: their results, not only their form."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def numbers(pattern: str, printed: str) -> list[list[float]]:
    """Return the numbers in the groups of a pattern, per line of the output that it matches as a whole."""
    rows = re.findall(f"^{pattern}$", printed, re.MULTILINE)
    assert rows, f"no line {pattern} in\n{printed}"
    return [[float(value) for value in ([row] if isinstance(row, str) else row)] for row in rows]


def check_colmap_database(printed: str, folder: Path) -> None:
    """Three pairs of which most matches are verified, all of them in the database."""
    pairs = numbers(r"\S+ \S+: (\d+) of (\d+) matches verified, geometry: [\w ]+", printed)
    assert len(pairs) == 3
    assert all(verified > 0.6 * matches > 200 for verified, matches in pairs)
    ((images, keypoints, total),) = numbers(
        r"\S*database\.db: (\d+) images, (\d+) keypoints, (\d+) verified matches", printed
    )
    assert (images, total) == (3, sum(verified for verified, _ in pairs))
    with closing(sqlite3.connect(folder / "colmap-example" / "database.db")) as connection:
        assert connection.execute("SELECT SUM(rows) FROM keypoints").fetchone() == (keypoints,)
        assert connection.execute("SELECT SUM(rows) FROM two_view_geometries").fetchone() == (total,)


def check_hloc_files(printed: str, folder: Path) -> None:
    """float16 is smaller and gives the same matches; where hloc is installed, it finds them too."""
    rows = numbers(r"\| doap-tiny-256b \| float(\d+) \| (\d+) \| (\d+) \|.*", printed)
    assert [row[0] for row in rows] == [32, 16]
    assert rows[1][1] < rows[0][1] < 100
    assert rows[0][2] == rows[1][2] > 1000
    assert list((folder / "hloc-example").glob("feats-*.h5"))


def check_hub_folder(printed: str, folder: Path) -> None:
    """The folder of a model, and its descriptors."""
    sizes = dict(re.findall(r"^(\S+): ([\d,]+) bytes$", printed, re.MULTILINE))
    assert {Path(name).name for name in sizes} == {"README.md", "config.json", "model.safetensors"}
    assert {name: (folder / name).stat().st_size for name in sizes} == {
        name: int(size.replace(",", "")) for name, size in sizes.items()
    }
    assert "200 keypoints of 512x512 pixels" in printed
    assert printed.endswith("; the same descriptors: True\n")


def check_kornia_extraction(printed: str, _: Path) -> None:
    """Our patches are as good as kornia's, and both match."""
    rows = numbers(r"\| \S+ \| (?:doap|kornia) \| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|", printed)
    assert len(rows) == 4
    for matches, correct, precision, cosine in rows:
        assert matches > 400
        assert correct > 0.65 * matches
        assert precision > 90
        assert cosine > 0.95
    assert all(own[1] > 0.97 * other[1] for own, other in zip(rows[::2], rows[1::2], strict=True))


def check_kornia_match(printed: str, folder: Path) -> None:
    """Most matches agree with a geometry."""
    ((matches, agreeing),) = numbers(r".*: (\d+) matches, (\d+) agree with an epipolar geometry", printed)
    assert agreeing > 0.9 * matches > 300
    check_picture(folder / "kornia_match.png")


def check_onnx_describe(printed: str, folder: Path) -> None:
    """onnxruntime gives PyTorch's descriptors, and they match."""
    ((first, second, mutual),) = numbers(r"\S+\.onnx: (\d+) and (\d+) keypoints, (\d+) mutual matches", printed)
    assert (first, second) == (500, 500)
    assert mutual > 230
    ((same,),) = numbers(r"([\d.]+)% of the descriptors are those of PyTorch; .*", printed)
    assert same > 95
    assert list(folder.glob("*.onnx"))


def check_opencv_match(printed: str, folder: Path) -> None:
    """We find more correct matches than SIFT."""
    ((sift,),) = numbers(r"SIFT: 2000 and 2000 keypoints, (\d+) inliers, .*", printed)
    ((ours,),) = numbers(r"doap-128: 2000 and 2000 keypoints, (\d+) inliers, .*", printed)
    assert ours > 1.05 * sift > 700
    check_picture(folder / "opencv_match.png")


def check_opencv_stitch(printed: str, folder: Path) -> None:
    """A camera with a focal length of 700 pixels and images of 360x420 pixels turns by 28 degrees."""
    ((width, height, focal),) = numbers(
        r"panorama\.jpg: (\d+)x(\d+) pixels of 3 photos, focal length (\d+) pixels", printed
    )
    expected = 700 * (np.radians(28) + 2 * np.arctan(180 / 700)), 700 * 2 * np.arctan(210 / 700), 700
    assert (width, height, focal) == pytest.approx(expected, rel=0.03)
    with Image.open(folder / "panorama.jpg") as image:
        assert image.size == (width, height)
        assert np.asarray(image.convert("L")).std() > 30


def check_slam_vocabulary(printed: str, folder: Path) -> None:
    """Each of eight crops retrieves the other of its photo."""
    ((low, high),) = numbers(r"TH_LOW = (\d+), TH_HIGH = (\d+) in ORBmatcher.cc, .*", printed)
    assert 40 < low < high < 128
    pairs = re.findall(r"^(\w+)-\d\.png: most similar (\w+)-\d\.png, score 0\.[1-9]\d*$", printed, re.MULTILINE)
    assert len(pairs) == 8
    assert all(query == found for query, found in pairs)
    assert (folder / "slam-example" / "voc.txt").stat().st_size > 10_000


def check_picture(path: Path) -> None:
    """Check that a picture shows something."""
    with Image.open(path) as image:
        assert min(image.size) > 200
        assert np.asarray(image.convert("L")).std() > 20


CHECKS: dict[str, Callable[[str, Path], None]] = {
    "colmap_database": check_colmap_database,
    "hloc_files": check_hloc_files,
    "hub_folder": check_hub_folder,
    "kornia_extraction": check_kornia_extraction,
    "kornia_match": check_kornia_match,
    "onnx_describe": check_onnx_describe,
    "opencv_match": check_opencv_match,
    "opencv_stitch": check_opencv_stitch,
    "slam_vocabulary": check_slam_vocabulary,
}
"""Check of what an example prints and leaves in its folder, by the name of its script."""
