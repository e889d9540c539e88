"""Arrays of HDF5 files are read in bounded memory."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from doap import DoapError, Features
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
