import numpy as np
import pytest

from doap import PatchSet
from doap.datasets.sets.scenes import SetScene, find_scenes, seeded_order
from doap.datasets.sets.united_set import UnitedSet
from support.sets.small_frame_set import (
    FrameSetMaker,
    add_plane,
    add_singles,
    add_static,
    crop_photo,
    sample_points,
    small_frame_set,
)


def test_folders_are_scenes_unless_they_are_collections() -> None:
    scenes = {scene.name: scene for scene in find_scenes(small_frame_set())}
    singles = {f"set/many/{number:02d}.png" for number in range(14)}
    folders = {f"set/{name}{number}" for name in ("static", "plane", "scene") for number in range(2)}
    assert set(scenes) == singles | folders | {"set/few"}
    assert scenes["set/few"] == SetScene("set/few", "views", (20, 21, 22))
    assert scenes["set/static1"].source == "static"
    assert scenes["set/plane0"].source == scenes["set/scene1"].source == "tracks"
    assert scenes["set/many/07.png"] == SetScene("set/many/07.png", "views", (7,))


@pytest.mark.parametrize(("alone", "count"), [(11, 1), (18, 1), (19, 20), (40, 41)])
def test_a_collection_has_hardly_any_linked_photos(alone: int, count: int) -> None:
    """Two linked photos of 13 and of 20 are a tenth or more; of 21 they are not."""
    maker = FrameSetMaker()
    add_singles(maker, "all", alone)
    points = sample_points(30, 0)
    maker.add("all/a.png", "static", {"all/a.png": crop_photo(0), "all/b.png": crop_photo(0)}, [points, points])
    scenes = find_scenes(maker.frame_set())
    assert len(scenes) == count
    if count == 1:
        assert scenes == [SetScene("all", "static", tuple(range(alone + 1)))]


def test_sequences_of_a_scene_and_photos_that_did_not_connect_stay_together() -> None:
    maker = FrameSetMaker()
    add_plane(maker, "hall", 0)
    maker.sequences[-1] = "hall/0.png"
    maker.add("hall/9.png", "views", {"hall/9.png": crop_photo(9)}, [sample_points(25, 9)])
    add_static(maker, "other", 1)
    assert find_scenes(maker.frame_set()) == [SetScene("hall", "tracks", (0, 1)), SetScene("other", "static", (2,))]


def test_photos_without_a_folder_and_sets_without_photos() -> None:
    maker = FrameSetMaker()
    for name in ("a.png", "b.png"):
        maker.add(name, "views", {name: crop_photo(0)}, [sample_points(25, 0)])
    assert [scene.name for scene in find_scenes(maker.frame_set())] == ["a.png", "b.png"]
    patches = np.zeros((4, 8, 8), np.uint8)
    assert find_scenes(PatchSet([patches], [0, 0, 1, 1], [0, 0, 2, 2], None, ["north", "none", "south"])) == [
        SetScene("north", "", (0,)),
        SetScene("south", "", (2,)),
    ]
    assert [scene.name for scene in find_scenes(PatchSet([patches], [0, 0, 1, 1], [3, 3, 5, 5]))] == [
        "sequence 3",
        "sequence 5",
    ]


def test_a_name_in_several_parts_of_a_union_is_one_scene() -> None:
    """The parts may have been built from the same photos."""
    patches, groups, sequences = np.zeros((4, 8, 8), np.uint8), [0, 0, 1, 1], [0, 0, 1, 1]
    first = PatchSet([patches], groups, sequences, None, ["north", "south"])
    second = PatchSet([patches], groups, sequences, None, ["south", "west"])
    assert find_scenes(UnitedSet([first, second], ["a", "b"])) == [
        SetScene("a/north", "", (0,)),
        SetScene("a/south", "", (1, 2)),
        SetScene("b/west", "", (3,)),
    ]
    unnamed = PatchSet([patches], groups, sequences)
    assert len(find_scenes(UnitedSet([unnamed, unnamed], ["a", "b"]))) == 4


def test_the_order_depends_on_names_and_seed_alone() -> None:
    names = [f"scene {number}" for number in range(50)]
    assert seeded_order(names, 3) == seeded_order(reversed(names), 3) != sorted(names)
    assert seeded_order(names, 4) != seeded_order(names, 3)
    fewer = [name for name in seeded_order(names, 3) if name != "scene 7"]
    assert seeded_order(set(names) - {"scene 7"}, 3) == fewer
