from pathlib import Path

import numpy as np
import pytest

from doap.datasets.sets.photo_sources import (
    PhotoSource,
    PhotoSources,
    find_sources,
    read_photo_sources,
    select_licences,
)
from doap.errors import DoapError
from support.sets.small_frame_set import small_frame_set

FREE, UNSTATED = "CC BY 4.0 (repo file)", "no licence stated"


def sources(*free: str) -> PhotoSources:
    """Return the sources of the small set: photos whose names contain one of some texts are free."""
    return {
        name: PhotoSource("github:a/b", FREE if any(text in name for text in free) else UNSTATED)
        for name in small_frame_set().photo_names
    }


def test_the_groups_of_chosen_photos_remain_whole() -> None:
    data = small_frame_set()
    kept = select_licences(data, sources("many", "static0", "plane1/0", "plane1/1"), ["CC*"])
    names = {kept.photo_names[photo] for photo in kept.photos}
    assert names == set(kept.photo_names)  # no other photo is stored
    assert {name.rsplit("/", 1)[0] for name in names} == {"set/many", "set/static0", "set/plane1"}
    assert "set/plane1/2.png" not in names
    # Points of the plane that the third photo shows as well are left out; its last 40 are not visible there.
    plane = kept.sequence_names.index("set/plane1")
    assert len(np.unique(kept.groups[kept.sequences == plane])) == 40
    sizes = {group: int((data.groups == group).sum()) for group in np.unique(kept.groups)}
    assert all((kept.groups == group).sum() == size for group, size in sizes.items())
    first = kept.photo_names.index("set/many/03.png")
    assert (kept.read_photo(first) == data.read_photo(data.photo_names.index("set/many/03.png"))).all()


def test_a_set_of_one_folder_of_archives_is_found_as_well() -> None:
    table = {"a/1.png": PhotoSource("x", FREE), "a/b/1.png": PhotoSource("y", UNSTATED)}
    assert find_sources(table, ["a/1.png", "photos/a/b/1.png", "a/b/1.png", "photos/a/1.png"]) == [
        ("x", FREE), ("y", UNSTATED), ("y", UNSTATED), ("x", FREE),
    ]  # fmt: skip
    with pytest.raises(DoapError, match=r"more/photos/a/1\.png: the first of 1"):
        find_sources(table, ["a/1.png", "more/photos/a/1.png"])


def test_nothing_chosen_and_unknown_photos_are_errors() -> None:
    with pytest.raises(DoapError, match=r"no photo has a licence like MIT\* or cc\*"):
        select_licences(small_frame_set(), sources("many"), ["MIT*", "cc*"])
    some = sources("many")
    del some["set/few/01.png"]
    with pytest.raises(DoapError, match=r"set/few/01\.png: the first of 1 photo of the set that is not in the CSV"):
        select_licences(small_frame_set(), some, ["CC*"])


def test_a_table_without_licences_is_an_error(tmp_path: Path) -> None:
    table = tmp_path / "photos.csv"
    table.write_text("archive,file,source,licence\nset,a.png,github:a/b,CC0\nset,b.png,github:a/b,\n")
    with pytest.raises(DoapError, match=r"photos.csv: must have the columns archive, file, source, licence"):
        read_photo_sources(table)
    table.write_text("archive,file,source,licence\nset,a.png,github:a/b,CC0\n", encoding="utf-8-sig")  # as by Excel
    assert read_photo_sources(table) == {"set/a.png": ("github:a/b", "CC0")}
