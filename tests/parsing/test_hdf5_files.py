"""HDF5 files are read in bounded memory, and no link leads out of them."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from doap import DoapError, Features
from doap.features.storage import write_group
from doap.folders.collection import FeatureCollection
from doap.folders.match_store import MatchCollection
from doap.parsing.hdf5_files import check_dataset
from support.random_features import random_features


def test_an_array_that_claims_more_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", (1 << 40,), "u1", chunks=(1 << 20,))
        file["b"] = np.arange(10)
        file.create_dataset("c", data=np.zeros(1 << 20, "u1"), compression="gzip")
        with pytest.raises(ValueError, match=r"a claims 1,099,511,627,776 bytes, but 0 are stored"):
            check_dataset("a", file["a"], 1 << 30)
        with pytest.raises(ValueError, match=r"c is stored in blocks of more than 1,000 bytes"):
            check_dataset("c", file["c"], 1000)
        assert check_dataset("b", file["b"], 1 << 30) == 80
        assert check_dataset("c", file["c"], 1 << 30) == 1 << 20


def test_a_link_that_leads_nowhere_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "image.h5"
    random_features(5).save(path)
    with h5py.File(path, "a") as file:
        del file["responses"]
        file["responses"] = h5py.SoftLink("/nowhere")
    with pytest.raises(DoapError, match=r"image\.h5: damaged or not a file of features"):
        Features.load(path)


def test_features_that_claim_terabytes_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "image.h5"
    random_features(5).save(path)
    with h5py.File(path, "a") as file:
        del file["descriptors"]
        file.create_dataset("descriptors", (1 << 40, 128), "f4", chunks=(1 << 10, 128))
    with pytest.raises(DoapError, match=r"image\.h5: damaged or not a file of features"):
        Features.load(path)


LINKS = {
    "soft": h5py.SoftLink("/b.png"),
    "external": h5py.ExternalLink("other.h5", "/a.png"),
    "external folder": h5py.ExternalLink("other.h5", "/"),
}


@pytest.mark.parametrize("kind", [*LINKS, "circle", "twice"])
def test_links_between_images_are_one_line(tmp_path: Path, kind: str) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        write_group(file.create_group("a.png"), {"frames": np.zeros((1, 2, 3)), "stamp": "other"})
    path = tmp_path / "features.h5"
    with h5py.File(path, "w") as file:
        write_group(file.create_group("b.png"), {"frames": np.zeros((1, 2, 3)), "stamp": "own"})
        if kind in LINKS:
            file["a.png"] = LINKS[kind]
        elif kind == "circle":
            folder = file.create_group("folder")
            folder["again"] = folder
        else:
            file["a.png"] = file["b.png"]
    with pytest.raises(DoapError, match=r"^[^\n]*features\.h5: damaged or not an HDF5 file of doap[^\n]*$"):
        FeatureCollection(path)


@pytest.mark.parametrize("kind", ["soft", "external", "storage", "virtual"])
def test_arrays_of_other_files_are_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "image.h5"
    random_features(5).save(path)
    random_features(5).save(tmp_path / "other.h5")
    with h5py.File(path, "a") as file:
        shape, dtype = file["frames"].shape, file["frames"].dtype
        del file["frames"]
        if kind == "storage":
            file.create_dataset("frames", shape, dtype, external=str(tmp_path / "other.h5"))
        elif kind == "virtual":
            layout = h5py.VirtualLayout(shape, dtype)
            layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "frames", shape)
            file.create_virtual_dataset("frames", layout)
        else:
            file["frames"] = h5py.ExternalLink(tmp_path / "other.h5", "frames") if kind != "soft" else LINKS[kind]
    with pytest.raises(DoapError, match=r"^[^\n]*image\.h5: damaged or not a file of features[^\n]*$"):
        Features.load(path)


def test_an_image_behind_a_link_is_one_line(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "matches.h5", "w") as file:
        file["a.png"] = h5py.ExternalLink("other.h5", "/a.png")
    with pytest.raises(DoapError, match=r"^[^\n]*matches\.h5: damaged[^\n]*$"):
        Features.load(tmp_path / "matches.h5", image="a.png")
    with pytest.raises(DoapError, match=r"^[^\n]*matches\.h5[^\n]*$"):
        MatchCollection(tmp_path / "matches.h5")
