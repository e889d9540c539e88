"""The official data sets that are known by name: where they are, and what must be in them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from doap.datasets.download.checking import (
    OXFORD,
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

PHOTOTOUR_MIRRORS = (
    "https://cmp.felk.cvut.cz/~mishkdmy/datasets/BrownPhotoTour/",
    "http://matthewalunbrown.com/patchdata/",
)
HPATCHES_HOME = "https://huggingface.co/datasets/vbalnt/hpatches/resolve/main/"
BENCHMARK_HOMES = (
    "https://raw.githubusercontent.com/hpatches/hpatches-benchmark/master/",
    "https://github.com/hpatches/hpatches-benchmark/raw/master/",
)
ROME_HOME = "http://pascal.inrialpes.fr/data2/paulin/RomePatches/"
OXFORD_HOME = "https://www.robots.ox.ac.uk/~vgg/research/affine/det_eval_files/"


@dataclass(frozen=True)
class Part:
    """One file to fetch.

    Args:
        file: its name.
        mirrors: addresses, in the order to ask.
        archive: whether it is to be unpacked; otherwise it is kept as it is.
        folder: where in the data set its content goes.
    """

    file: str
    mirrors: tuple[str, ...]
    archive: bool = True
    folder: str = "."


@dataclass(frozen=True)
class DataSet:
    """An official data set.

    Args:
        name: on the command line, and of its folder.
        what: it is, in one line.
        terms: under which it may be used, as far as they are stated.
        page: where a person finds it.
        size: bytes to fetch or, where that is not known, to keep; about.
        parts: the files to fetch.
        inspect: looks at a folder and says what it holds.
        expected: how many of what it must hold.
        sha256: of the content, where it is known (see `content.py`).
        brings: names of further sets that are fetched with it.
    """

    name: str
    what: str
    terms: str
    page: str
    size: int
    parts: tuple[Part, ...]
    inspect: Callable[[Path], Content]
    expected: Mapping[str, int]
    sha256: str | None = None
    brings: tuple[str, ...] = ()


def find(name: str) -> DataSet:
    """The data set of this name, or a DoapError that lists those there are."""
    if name not in CATALOGUE:
        raise DoapError(f"{name}: no data set of this name; there are {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def _phototour(scene: str, title: str, patches: int, size: int) -> DataSet:
    file = f"{scene}.zip"
    return DataSet(
        name=f"phototour-{scene}",
        what=f"patches of 64x64, {title}",
        terms="no licence stated; cite Brown, Hua and Winder, PAMI 2011",
        page="http://matthewalunbrown.com/patchdata/patchdata.html",
        size=size,
        parts=(Part(file, tuple(home + file for home in PHOTOTOUR_MIRRORS)),),
        inspect=inspect_phototour,
        expected={"patches": patches, "pairs": 100_000},
    )


def _task_lists() -> tuple[Part, ...]:
    splits = Part(
        "splits.json",
        (f"{BENCHMARK_HOMES[0]}tasks/splits/splits.json", f"{BENCHMARK_HOMES[0]}python/utils/splits.json"),
        archive=False,
    )
    names = [f"{kind}_split-{split}.csv" for kind in TASK_LISTS for split in SPLITS]
    return splits, *(
        Part(name, tuple(f"{home}tasks/{name}" for home in BENCHMARK_HOMES), archive=False) for name in names
    )


def _rome_files() -> tuple[Part, ...]:
    names = [f"patch_retrieval_Rome_{half}{kind}.mat" for half in ("train", "test") for kind in ("", "_labels")]
    return tuple(Part(name, (ROME_HOME + name,), archive=False) for name in names)


_ALL = (
    _phototour("liberty", "Statue of Liberty", 450_092, 1_900_000_000),
    _phototour("notredame", "Notre-Dame", 468_159, 2_000_000_000),
    _phototour("yosemite", "Half Dome", 633_587, 2_700_000_000),
    DataSet(
        name="hpatches",
        what="patches of 65x65, three levels of jitter",
        terms="MIT licence, as its repository states; cite Balntas, Lenc, Vedaldi and Mikolajczyk, CVPR 2017",
        page="https://github.com/hpatches/hpatches-dataset",
        size=4_200_000_000,
        parts=(Part("hpatches-release.zip", (HPATCHES_HOME + "hpatches-release.zip",)),),
        inspect=inspect_hpatches,
        expected={"i_ sequences": 57, "v_ sequences": 59},
        brings=("hpatches-tasks",),
    ),
    DataSet(
        name="hpatches-sequences",
        what="the photos of HPatches, with homographies",
        terms="MIT licence, as its repository states; cite Balntas, Lenc, Vedaldi and Mikolajczyk, CVPR 2017",
        page="https://github.com/hpatches/hpatches-dataset",
        size=1_300_000_000,
        parts=(
            Part(
                "hpatches-sequences-release.zip",
                (
                    HPATCHES_HOME + "hpatches-sequences-release.zip",
                    "https://www.kaggle.com/api/v1/datasets/download/javidtheimmortal/hpatches-sequence-release",
                ),
            ),
        ),
        inspect=inspect_hpatches_sequences,
        expected={"i_ sequences": 57, "v_ sequences": 59, "images": 116 * 6},
    ),
    DataSet(
        name="hpatches-tasks",
        what="the lists of the tasks of HPatches",
        terms="see the repository; cite Balntas, Lenc, Vedaldi and Mikolajczyk, CVPR 2017",
        page="https://github.com/hpatches/hpatches-benchmark/tree/master/tasks",
        size=650_000_000,
        parts=_task_lists(),
        inspect=inspect_hpatches_tasks,
        expected={"splits": 6, "verification lists": 18, "retrieval lists": 12},
    ),
    DataSet(
        name="romepatches",
        what="patches of 51x51, in groups of ten",
        terms="no licence stated; cite Paulin and others, ICCV 2015, and Li, Snavely and Huttenlocher, ECCV 2010",
        page="http://lear.inrialpes.fr/people/paulin/projects/RomePatches/",
        size=200_000_000,
        parts=_rome_files(),
        inspect=inspect_romepatches,
        expected={"patches": 20_000},
    ),
    DataSet(
        name="oxford",
        what="photos of plane scenes, with homographies",
        terms="no licence stated; cite Mikolajczyk and Schmid, PAMI 2005",
        page="https://www.robots.ox.ac.uk/~vgg/research/affine/",
        size=50_000_000,
        parts=tuple(Part(f"{name}.tar.gz", (f"{OXFORD_HOME}{name}.tar.gz",), folder=name) for name in OXFORD),
        inspect=inspect_oxford,
        expected={"sequences": 8, "images": 48},
    ),
)
CATALOGUE = {data.name: data for data in _ALL}
