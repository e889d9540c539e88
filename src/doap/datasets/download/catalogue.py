"""Catalogue of the official data sets: their URLs and the required content."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from doap.datasets.download.checking import (
    OXFORD_SEQUENCES,
    Content,
    inspect_hpatches,
    inspect_hpatches_sequences,
    inspect_hpatches_tasks,
    inspect_oxford,
    inspect_phototour,
    inspect_romepatches,
)
from doap.errors import DoapError

SPLITS = ("a", "b", "c", "full", "illum", "view")
TASK_LISTS = ("verif_pos", "verif_neg_intra", "verif_neg_inter", "retr_queries", "retr_distractors")

PHOTOTOUR_URLS = (
    "https://cmp.felk.cvut.cz/~mishkdmy/datasets/BrownPhotoTour/",
    "http://matthewalunbrown.com/patchdata/",
)
HPATCHES_URL = "https://huggingface.co/datasets/vbalnt/hpatches/resolve/main/"
HPATCHES_BENCHMARK_URLS = (
    "https://raw.githubusercontent.com/hpatches/hpatches-benchmark/master/",
    "https://github.com/hpatches/hpatches-benchmark/raw/master/",
)
ROME_URL = "http://pascal.inrialpes.fr/data2/paulin/RomePatches/"
OXFORD_URL = "https://www.robots.ox.ac.uk/~vgg/research/affine/det_eval_files/"


@dataclass(frozen=True)
class RemoteFile:
    """A file to download.

    Args:
        name: File name.
        urls: URLs of its mirrors, in the order to try.
        is_archive: Whether to unpack it; other files are stored as they are.
        folder: Folder within the data set for its content.
    """

    name: str
    urls: tuple[str, ...]
    is_archive: bool = True
    folder: str = "."


@dataclass(frozen=True)
class DataSet:
    """An official data set.

    Args:
        name: Name on the command line, and of its folder.
        description: Description in one line.
        terms: Terms of use, as far as they are stated.
        page: Web page of the data set.
        size: Approximate size of the download in bytes, or of the content where the former is unknown.
        files: Files to download.
        inspect: Returns the content of a folder; see `checking.py`.
        expected: Required counts of the content, for example of "patches".
        sha256: Hash of the content, if it is published; see `checking.py`. Otherwise that of the first download is
            recorded.
        companions: Names of further data sets that are downloaded with it.
    """

    name: str
    description: str
    terms: str
    page: str
    size: int
    files: tuple[RemoteFile, ...]
    inspect: Callable[[Path], Content]
    expected: Mapping[str, int]
    sha256: str | None = None
    companions: tuple[str, ...] = ()


def is_plain_http(url: str) -> bool:
    """Return whether a URL is not encrypted, so that others on the way can change what it delivers."""
    return url.lower().startswith("http:")


def describe_plain_http() -> str:
    """Return a line on the data sets of the catalogue that come over plain http, from all mirrors or from some."""
    names: dict[str, list[str]] = {"from all mirrors": [], "from some mirrors": []}
    for data in CATALOGUE.values():
        plain = [[is_plain_http(url) for url in file.urls] for file in data.files]
        if any(map(any, plain)):
            names["from all mirrors" if any(map(all, plain)) else "from some mirrors"].append(data.name)
    return "; ".join(f"over plain http {mirrors}: {', '.join(sets)}" for mirrors, sets in names.items() if sets)


def find_dataset(name: str) -> DataSet:
    """Return the data set of this name; a DoapError lists the known names."""
    if name not in CATALOGUE:
        raise DoapError(f"{name}: unknown data set; choose one of {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def _phototour(scene: str, title: str, patches: int, size: int) -> DataSet:
    file = f"{scene}.zip"
    return DataSet(
        name=f"phototour-{scene}",
        description=f"patches of 64x64, {title}",
        terms="no licence stated; cite Brown, Hua and Winder, PAMI 2011",
        page="http://matthewalunbrown.com/patchdata/patchdata.html",
        size=size,
        files=(RemoteFile(file, tuple(url + file for url in PHOTOTOUR_URLS)),),
        inspect=inspect_phototour,
        expected={"patches": patches, "pairs": 100_000},
    )


def _task_lists() -> tuple[RemoteFile, ...]:
    splits = RemoteFile(
        "splits.json",
        (
            f"{HPATCHES_BENCHMARK_URLS[0]}tasks/splits/splits.json",
            f"{HPATCHES_BENCHMARK_URLS[0]}python/utils/splits.json",
        ),
        is_archive=False,
    )
    names = [f"{kind}_split-{split}.csv" for kind in TASK_LISTS for split in SPLITS]
    return splits, *(
        RemoteFile(name, tuple(f"{url}tasks/{name}" for url in HPATCHES_BENCHMARK_URLS), is_archive=False)
        for name in names
    )


def _rome_files() -> tuple[RemoteFile, ...]:
    names = [f"patch_retrieval_Rome_{half}{kind}.mat" for half in ("train", "test") for kind in ("", "_labels")]
    return tuple(RemoteFile(name, (ROME_URL + name,), is_archive=False) for name in names)


_DATASETS = (
    _phototour("liberty", "Statue of Liberty", 450_092, 1_900_000_000),
    _phototour("notredame", "Notre-Dame", 468_159, 2_000_000_000),
    _phototour("yosemite", "Half Dome", 633_587, 2_700_000_000),
    DataSet(
        name="hpatches",
        description="patches of 65x65, three levels of jitter",
        terms="MIT licence, as its repository states; cite Balntas, Lenc, Vedaldi and Mikolajczyk, CVPR 2017",
        page="https://github.com/hpatches/hpatches-dataset",
        size=4_200_000_000,
        files=(RemoteFile("hpatches-release.zip", (HPATCHES_URL + "hpatches-release.zip",)),),
        inspect=inspect_hpatches,
        expected={"i_ sequences": 57, "v_ sequences": 59},
        companions=("hpatches-tasks",),
    ),
    DataSet(
        name="hpatches-sequences",
        description="images of HPatches, with homographies",
        terms="MIT licence, as its repository states; cite Balntas, Lenc, Vedaldi and Mikolajczyk, CVPR 2017",
        page="https://github.com/hpatches/hpatches-dataset",
        size=1_300_000_000,
        files=(
            RemoteFile(
                "hpatches-sequences-release.zip",
                (
                    HPATCHES_URL + "hpatches-sequences-release.zip",
                    "https://www.kaggle.com/api/v1/datasets/download/javidtheimmortal/hpatches-sequence-release",
                ),
            ),
        ),
        inspect=inspect_hpatches_sequences,
        expected={"i_ sequences": 57, "v_ sequences": 59, "images": 116 * 6},
    ),
    DataSet(
        name="hpatches-tasks",
        description="task lists of HPatches",
        terms="see the repository; cite Balntas, Lenc, Vedaldi and Mikolajczyk, CVPR 2017",
        page="https://github.com/hpatches/hpatches-benchmark/tree/master/tasks",
        size=650_000_000,
        files=_task_lists(),
        inspect=inspect_hpatches_tasks,
        expected={"splits": 6, "verification lists": 18, "retrieval lists": 12},
    ),
    DataSet(
        name="romepatches",
        description="patches of 51x51, in groups of ten",
        terms="no licence stated; cite Paulin and others, ICCV 2015, and Li, Snavely and Huttenlocher, ECCV 2010",
        page="http://lear.inrialpes.fr/people/paulin/projects/RomePatches/",
        size=200_000_000,
        files=_rome_files(),
        inspect=inspect_romepatches,
        expected={"patches": 20_000},
    ),
    DataSet(
        name="oxford",
        description="images of planar scenes, with homographies",
        terms="no licence stated; cite Mikolajczyk and Schmid, PAMI 2005",
        page="https://www.robots.ox.ac.uk/~vgg/research/affine/",
        size=50_000_000,
        files=tuple(
            RemoteFile(f"{name}.tar.gz", (f"{OXFORD_URL}{name}.tar.gz",), folder=name) for name in OXFORD_SEQUENCES
        ),
        inspect=inspect_oxford,
        expected={"sequences": 8, "images": 48},
    ),
)
CATALOGUE = {data.name: data for data in _DATASETS}
