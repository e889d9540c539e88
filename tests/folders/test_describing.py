"""Describing of folders: the same as image by image, resumable, and whatever is in the folder."""

import dataclasses
import json
import math
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import skimage
from PIL import Image

from doap.errors import DoapError
from doap.features import Features, detect_and_describe
from doap.folders import DescribeSettings, FeatureCollection, describe_folder
from doap.folders.feature_store import feature_store
from doap.folders.image_tasks import Failure, ImageFile, ImageTask, describe_images, describe_task
from doap.images.reading import read_grey
from doap.networks.registry import load
from folders.conftest import SETTINGS, InProcess, open_in_process
from support.nested_models import nested_copy

NAMES = ["a.png", "b c/a.png", "b c/ü.png", "d/e/x.jpg", "d/y.jpg"]


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_features_are_those_of_the_images_one_by_one(described: Path) -> None:
    collection = FeatureCollection(described)
    assert collection.names == NAMES
    model = load(SETTINGS.model)
    for name in NAMES:
        expected = detect_and_describe(described.parent / "photos" / name, model, max_keypoints=150)
        features = collection[name]
        np.testing.assert_array_equal(features.frames, expected.frames)
        np.testing.assert_allclose(features.descriptors, expected.descriptors, atol=1e-6)  # other number of threads
        assert (features.size, features.model) == ((300, 300), "doap-demo-128")
        assert len(Features.load(described, image=name)) == len(features) == 150


def test_a_number_format_for_bits_is_refused_before_the_first_image(photos: Path, tmp_path: Path) -> None:
    settings = DescribeSettings(model="doap-demo-256b", store="uint8")
    with pytest.raises(DoapError, match=r"^store uint8: for real-valued descriptors; the bits of doap-demo-256b are"):
        describe_folder(photos, tmp_path / "f.h5", settings)
    assert not (tmp_path / "f.h5").exists()


def test_some_images_can_be_described_as_their_pixels_are_stored(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    photo = Image.fromarray(skimage.data.camera()[:200, :260])
    for name in ("plain.png", "turned.png", "other.png"):
        photo.save(tmp_path / name, exif=exif if name == "turned.png" else None)
    settings = dataclasses.replace(SETTINGS, exif_rotation=False)
    summary = describe_folder(tmp_path, tmp_path / "f", settings, names=iter(["plain.png", "turned.png"]))
    features = FeatureCollection(tmp_path / "f")
    assert (summary.described, features.names) == (2, ["plain.png", "turned.png"])
    assert features["turned.png"].size == (200, 260)
    np.testing.assert_array_equal(features["turned.png"].frames, features["plain.png"].frames)


def test_one_text_is_no_list_of_names(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"^names: '05\.png' is one text; give a list of names, \['05\.png'\]$"):
        describe_folder(photos, tmp_path / "f", SETTINGS, names="05.png")
    assert not (tmp_path / "f").exists()


def test_a_name_of_no_image_is_refused(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"^names: no image is called nowhere\.png; an image is named by its path"):
        describe_folder(photos, tmp_path / "f", SETTINGS, names={"b c/ü.png", "nowhere.png"})
    assert not (tmp_path / "f").exists()


def test_the_file_is_plain_hdf5(described: Path) -> None:
    with h5py.File(described) as file:
        settings = json.loads(file.attrs["settings"])
        assert settings["model"] == "doap-demo-128"
        assert len(settings["model_sha256"]) == 64
        group = file["b c/ü.png"]
        assert group["keypoints"].shape == (150, 2)
        assert group["descriptors"].shape == (150, 128)
        assert group.attrs["model"] == "doap-demo-128"
        assert list(group["size"]) == [300, 300]


def test_a_disk_too_small_for_the_file_keeps_what_is_done(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "f.h5"
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5 * 75_000))  # 150 keypoints: 85 kB
        with pytest.raises(DoapError, match=r"f\.h5: cannot be written \(No space left on device\); what is done"):
            describe_folder(photos, output, SETTINGS)
    assert not output.exists()
    assert describe_folder(photos, output, SETTINGS).unchanged == 5


def test_a_folder_called_frames_is_described(tmp_path: Path) -> None:
    photo = skimage.data.camera()[:200, :200]
    names = ["video/a.png", "video/frames/1.png", "video/frames/2.png"]
    for name in names:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo).save(path)
    assert describe_folder(tmp_path / "photos", tmp_path / "f.h5", SETTINGS).described == 3
    assert FeatureCollection(tmp_path / "f.h5").names == names
    summary = describe_folder(tmp_path / "photos", tmp_path / "f.h5", SETTINGS)
    assert (summary.described, summary.unchanged, summary.others) == (0, 3, 0)


def test_a_folder_of_archives_has_the_same_features(described: Path, photos: Path, tmp_path: Path) -> None:
    summary = describe_folder(photos, tmp_path / "features", SETTINGS, workers=1)
    assert (summary.described, summary.unchanged, summary.failures, summary.others) == (5, 0, [], 0)
    (tmp_path / "features" / "._a.png.npz").write_bytes(b"of macOS")
    collection, expected = FeatureCollection(tmp_path / "features"), FeatureCollection(described)
    assert collection.names == NAMES
    assert (tmp_path / "features" / "b c" / "a.png.npz").is_file()
    for name in NAMES:
        np.testing.assert_array_equal(collection[name].descriptors, expected[name].descriptors)


@pytest.mark.parametrize("output", ["features.h5", "features"])
def test_only_new_and_changed_images_are_described_again(photos: Path, tmp_path: Path, output: str) -> None:
    target = tmp_path / output
    describe_folder(photos, target, SETTINGS, workers=1)
    before = contents(tmp_path)
    summary = describe_folder(photos, target, SETTINGS, workers=1)
    assert (summary.described, summary.unchanged) == (0, 5)
    assert contents(tmp_path) == before
    Image.open(photos / "d" / "y.jpg").transpose(Image.Transpose.ROTATE_90).save(photos / "a.png")
    Image.open(photos / "d" / "y.jpg").save(photos / "new.png")
    (photos / "d" / "e" / "x.jpg").unlink()
    summary = describe_folder(photos, target, SETTINGS, workers=1)
    assert (summary.described, summary.unchanged, summary.others) == (2, 3, 1)
    collection = FeatureCollection(target)
    assert collection.names == sorted([*NAMES, "new.png"])  # the features of a removed image are kept
    expected = detect_and_describe(photos / "a.png", load(SETTINGS.model), max_keypoints=150)
    np.testing.assert_array_equal(collection["a.png"].frames, expected.frames)


def test_an_extended_file_equals_one_that_was_made_at_once(photos: Path, tmp_path: Path) -> None:
    describe_folder(photos, tmp_path / "once.h5", SETTINGS, workers=1)
    (photos / "d").rename(tmp_path / "aside")
    describe_folder(photos, tmp_path / "twice.h5", SETTINGS, workers=1)
    (tmp_path / "aside").rename(photos / "d")
    describe_folder(photos, tmp_path / "twice.h5", SETTINGS, workers=1)
    assert (tmp_path / "once.h5").read_bytes() == (tmp_path / "twice.h5").read_bytes()


@pytest.mark.parametrize("output", ["features.h5", "features"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "doap-demo-256b"}, "holds features of doap-demo-128; choose another output, or --force"),
        ({"max_keypoints": 100}, "holds features with max_keypoints = 150, not 100"),
        ({"store": "float16"}, "with store = float32, not float16"),
    ],
)
def test_features_of_other_settings_are_refused(
    photos: Path, tmp_path: Path, output: str, change: dict[str, str | int], message: str
) -> None:
    image = photos / "a.png"
    describe_folder(image, tmp_path / output, SETTINGS, workers=1)
    other = dataclasses.replace(SETTINGS, **change)  # type: ignore[arg-type]
    with pytest.raises(DoapError, match=message):
        describe_folder(image, tmp_path / output, other, workers=1)
    summary = describe_folder(image, tmp_path / output, other, workers=1, force=True)
    assert summary.described == 1
    assert FeatureCollection(tmp_path / output)["a.png"].model == other.model


@pytest.mark.parametrize("output", ["features.h5", "features"])
def test_force_removes_features_of_other_settings(photos: Path, tmp_path: Path, output: str) -> None:
    describe_folder(photos, tmp_path / output, SETTINGS, workers=1)
    other = dataclasses.replace(SETTINGS, model="doap-demo-256b")
    summary = describe_folder(photos / "d", tmp_path / output, other, workers=1, force=True)
    assert summary.others == 0
    assert FeatureCollection(tmp_path / output).names == ["e/x.jpg", "y.jpg"]


def test_force_keeps_archives_of_the_user_and_features_of_the_same_settings(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "features"
    describe_folder(photos, output, SETTINGS, workers=1)
    np.savez(output / "mine.npz", a=np.arange(3))
    assert describe_folder(photos / "a.png", output, SETTINGS, workers=1, force=True).unchanged == 1
    assert (output / "d/y.jpg.npz").exists()
    (output / "collection.json").write_text("{")
    assert describe_folder(photos / "a.png", output, SETTINGS, workers=1, force=True).described == 1
    assert sorted(path.name for path in output.rglob("*.npz")) == ["a.png.npz", "mine.npz"]


@pytest.mark.parametrize("output", ["features.h5", "features"])
def test_force_keeps_features_of_the_same_settings(photos: Path, tmp_path: Path, output: str) -> None:
    describe_folder(photos, tmp_path / output, SETTINGS, workers=1)
    summary = describe_folder(photos / "d", tmp_path / output, SETTINGS, workers=1, force=True)
    assert (summary.described, summary.unchanged, summary.others) == (2, 0, 5)


def interrupt(photos: Path, output: Path, settings: DescribeSettings, force: bool = False) -> None:
    """Interrupt a run after two images."""

    def stop(done: int, total: int) -> None:
        if done == 2 < total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        describe_folder(photos, output, settings, workers=1, force=force, progress=stop)


@pytest.mark.parametrize("output", ["features.h5", "features"])
def test_an_interrupted_run_is_not_replaced_by_one_of_other_settings(photos: Path, tmp_path: Path, output: str) -> None:
    interrupt(photos, tmp_path / output, SETTINGS)
    other = dataclasses.replace(SETTINGS, model="doap-demo-256b")
    with pytest.raises(DoapError, match="features of doap-demo-128; choose another output, or --force"):
        describe_folder(photos, tmp_path / output, other, workers=1)
    assert describe_folder(photos, tmp_path / output, SETTINGS, workers=1).unchanged == 2


@pytest.mark.parametrize("output", ["features.h5", "features"])
def test_an_interrupted_run_with_force_continues(photos: Path, tmp_path: Path, output: str) -> None:
    describe_folder(photos, tmp_path / output, SETTINGS, workers=1)
    other = dataclasses.replace(SETTINGS, model="doap-demo-256b")
    interrupt(photos, tmp_path / output, other, force=True)
    assert describe_folder(photos, tmp_path / output, other, workers=1, force=True).unchanged == 2


def test_matches_of_an_interrupted_run_in_a_folder_of_features_are_no_features(photos: Path, tmp_path: Path) -> None:
    describe_folder(photos / "d", tmp_path / "features", SETTINGS, workers=1)
    (tmp_path / "features" / ".matches.h5.parts").mkdir()
    np.savez(tmp_path / "features" / ".matches.h5.parts" / "00000000.npz", pairs=np.zeros((0, 2)))
    assert FeatureCollection(tmp_path / "features").names == ["e/x.jpg", "y.jpg"]


def test_bad_images_are_listed_and_others_described(photos: Path, tmp_path: Path) -> None:
    (photos / "broken.jpg").write_bytes((photos / "d" / "y.jpg").read_bytes()[:500])
    (photos / "text.png").write_text("words")
    Image.new("L", (200, 100), 90).save(photos / "flat.png")
    unnamed = os.fsencode(photos) + b"/\xff.jpg"
    with open(unnamed, "wb") as file:  # noqa: PTH123 - a path of bytes
        file.write((photos / "d" / "y.jpg").read_bytes())
    summary = describe_folder(photos, tmp_path / "f.h5", SETTINGS, workers=1)
    assert summary.described == 7
    assert summary.without_keypoints == ["flat.png"]
    assert [line.partition(": ")[0] for line in summary.failures] == [
        str(photos / "broken.jpg"),
        str(photos / "text.png"),
    ]
    assert all("\n" not in line for line in summary.failures)
    collection = FeatureCollection(tmp_path / "f.h5")
    assert len(collection["flat.png"]) == 0
    assert len(collection["\\xff.jpg"]) == 150
    (photos / "a.png").write_text("words")  # features of an image that became unreadable are not kept
    assert len(describe_folder(photos, tmp_path / "f.h5", SETTINGS, workers=1).failures) == 3
    assert "a.png" not in FeatureCollection(tmp_path / "f.h5").names


@pytest.mark.parametrize("output", ["f", "f.h5"])
def test_a_name_too_long_for_the_output_fails_alone(photos: Path, tmp_path: Path, output: str) -> None:
    names = ["x" * length + ".png" for length in (245, 251)]  # an archive has four more bytes
    for name in names:
        shutil.copy(photos / "a.png", photos / name)
    (tmp_path / "masks").mkdir()
    Image.new("L", (300, 300), 1).save(tmp_path / "masks" / "a.png.png")
    summary = describe_folder(photos, tmp_path / output, SETTINGS, masks=tmp_path / "masks")
    assert (summary.described, len(summary.failures)) == (6, 1)
    assert summary.failures[0].startswith(f"{names[1]}: this name is too long")
    assert FeatureCollection(tmp_path / output).names == sorted([*NAMES, names[0]])
    (photos / names[1]).write_text("words")
    assert len(describe_folder(photos, tmp_path / output, SETTINGS).failures) == 1


def test_control_characters_of_names_are_escaped(photos: Path, tmp_path: Path) -> None:
    (photos / "a\nb\x1b[31m.jpg").write_text("words")
    (line,) = describe_folder(photos, tmp_path / "f", SETTINGS).failures
    assert line.startswith(rf"{photos}/a\x0ab\x1b[31m.jpg: not an image")


@pytest.mark.parametrize("batch", [1, 4])
def test_an_image_that_ends_its_worker_is_named(photos: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr("doap.folders.image_tasks.DEVICE_BATCH", batch)
    monkeypatch.setattr("doap.folders.image_tasks.load_model", lambda settings, _: load(settings.model))
    paths = [photos / name for name in ("a.png", "crash.png", "b c/a.png", "d/y.jpg", "d/e/x.jpg")]
    files = [ImageFile(path, None) for path in paths]
    outcomes = list(describe_images(InProcess("crash.png"), files, SETTINGS, "a GPU"))
    assert [isinstance(outcome, Failure) for outcome in outcomes] == [False, True, False, False, False]
    assert isinstance(outcomes[1], Failure)
    assert outcomes[1].line.startswith(f"{paths[1]}: describing it ends the process")


def test_masks_leave_keypoints_out_and_change_the_stamp(photos: Path, tmp_path: Path) -> None:
    describe_folder(photos / "d", tmp_path / "f", SETTINGS, workers=1)
    mask = np.zeros((300, 300), np.uint8)
    mask[:, 150:] = 1
    (tmp_path / "masks" / "e").mkdir(parents=True)
    Image.fromarray(mask).save(tmp_path / "masks" / "e" / "x.jpg.png")
    summary = describe_folder(photos / "d", tmp_path / "f", SETTINGS, masks=tmp_path / "masks", workers=1)
    assert (summary.described, summary.unchanged) == (1, 1)
    keypoints = FeatureCollection(tmp_path / "f")["e/x.jpg"].keypoints
    assert len(keypoints) > 20
    assert (keypoints[:, 0] >= 149.5).all()
    Image.fromarray(mask[:10]).save(tmp_path / "masks" / "e" / "x.jpg.png")
    summary = describe_folder(photos / "d", tmp_path / "f", SETTINGS, masks=tmp_path / "masks", workers=1)
    assert len(summary.failures) == 1
    assert "mask" in summary.failures[0]
    with pytest.raises(DoapError, match="no such folder of masks"):
        describe_folder(photos, tmp_path / "g", SETTINGS, masks=tmp_path / "nowhere")
    with pytest.raises(DoapError, match=r"no mask of any image; that of a\.png is called a\.png\.png"):
        describe_folder(photos / "a.png", tmp_path / "g", SETTINGS, masks=tmp_path / "masks")


def test_reduced_images_give_frames_of_the_full_size(tmp_path: Path, photos: Path) -> None:
    settings = dataclasses.replace(SETTINGS, max_size=150)
    describe_folder(photos / "a.png", tmp_path / "f.h5", settings, workers=1)
    features = FeatureCollection(tmp_path / "f.h5")["a.png"]
    assert features.size == (300, 300)
    assert features.keypoints.max() > 200


def make_other(path: Path, kind: str) -> None:
    if kind == "words":
        path.write_text("words")
    elif kind == "hdf5":
        h5py.File(path, "w").close()
    elif kind != "nothing":
        path.mkdir()
    if kind == "archives":
        np.savez(path / "x.npz", a=1)
    elif kind == "damaged":
        (path / "collection.json").write_text("{")


@pytest.mark.parametrize(
    ("kind", "output", "message"),
    [
        ("words", "f.h5", "damaged or not an HDF5 file"),
        ("words", "f", "is a file, not a folder"),
        ("folder", "f.h5", "is a folder, not a file"),
        ("hdf5", "f.h5", "not features of a folder"),
        ("archives", "f", "unknown settings"),
        ("damaged", "f", "damaged"),
        ("nothing", "f.npz", "stored in a .h5 file or in a folder"),
    ],
)
def test_an_output_that_is_something_else_is_refused(
    photos: Path, tmp_path: Path, kind: str, output: str, message: str
) -> None:
    make_other(tmp_path / output, kind)
    before = contents(tmp_path)
    with pytest.raises(DoapError, match=message) as error:
        describe_folder(photos, tmp_path / output, SETTINGS, workers=1)
    assert "\n" not in str(error.value)
    assert contents(tmp_path) == before


def test_an_output_that_cannot_be_written_is_one_line(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DoapError, match="cannot create this folder"):
        describe_folder(photos, tmp_path / "file" / "features.h5", SETTINGS, workers=1)


def test_wrong_settings_are_one_line(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="detector fast: unknown; choose one of dog"):
        DescribeSettings(detector="fast")
    for name in ("precision", "frames", "store"):
        with pytest.raises(DoapError, match=f"{name} odd: unknown; choose one of "):
            DescribeSettings(**{name: "odd"})  # type: ignore[arg-type]
    for value, message in ((math.nan, "at least 0 and finite, not nan"), ("1", "a number, not '1'")):
        with pytest.raises(DoapError, match=f"min_response must be {message}"):
            DescribeSettings(min_response=value)  # type: ignore[arg-type]
    with pytest.raises(DoapError, match="max_keypoints must be at least 1, not -5"):
        DescribeSettings(max_keypoints=-5)
    with pytest.raises(DoapError, match="no model of this name"):
        describe_folder(photos, tmp_path / "f", DescribeSettings("doap-9000"), workers=1)
    assert not (tmp_path / "f").exists()


def test_limits_are_whole_numbers_and_settings_may_be_of_numpy(photos: Path, tmp_path: Path) -> None:
    for wrong, message in ((2.5, "a whole number, or None, not 2.5"), (1 << 31, "less than 2,147,483,648")):
        with pytest.raises(DoapError, match=f"max_keypoints must be {message}"):
            DescribeSettings(max_keypoints=wrong)  # type: ignore[arg-type]
    with pytest.raises(DoapError, match="max_size must be a whole number, or None, not nan"):
        DescribeSettings(max_size=math.nan)  # type: ignore[arg-type]
    path = nested_copy("doap-demo-128", tmp_path, [])
    numbers = {"max_keypoints": np.int64(20), "min_response": np.float32(0.02)}
    settings = DescribeSettings(Path(path), **numbers)  # type: ignore[arg-type]
    assert describe_folder(photos / "a.png", tmp_path / "f.h5", settings, workers=1).described == 1
    whole = DescribeSettings(min_response=0, exif_rotation=1)  # type: ignore[arg-type]
    assert json.dumps(whole.identity()) == json.dumps(DescribeSettings().identity())  # stamps depend on it
    plain = DescribeSettings(path, max_keypoints=20, min_response=float(np.float32(0.02)))
    assert describe_folder(photos / "a.png", tmp_path / "f.h5", plain, workers=1).unchanged == 1


@pytest.mark.parametrize("name", ["f", "f.h5"])
def test_a_run_that_made_nothing_hinders_no_other(photos: Path, tmp_path: Path, name: str) -> None:
    feature_store(tmp_path / name).open(dataclasses.replace(SETTINGS, max_keypoints=10).identity(), False)
    assert describe_folder(photos / "a.png", tmp_path / name, SETTINGS, workers=1).described == 1
    assert len(FeatureCollection(tmp_path / name)["a.png"]) == 150


def test_a_suffix_in_capital_letters_makes_no_folder(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"F\.H5: features of a folder are stored in a \.h5 file or in a folder"):
        describe_folder(photos, tmp_path / "F.H5", SETTINGS, workers=1)
    assert not (tmp_path / "F.H5").exists()


def test_images_are_described_together_on_a_device_in_their_order(photos: Path) -> None:
    (photos / "b.png").write_text("words")
    names = ["b.png", *NAMES] * 2
    with open_in_process("local") as engine, pytest.MonkeyPatch.context() as patch:
        patch.setattr("doap.folders.image_tasks.load_model", lambda *_: load(SETTINGS.model))
        files = [ImageFile(photos / name, None) for name in names]
        outcomes = list(describe_images(engine, files, SETTINGS, "cuda"))  # the model of this test is on the CPU
    assert [isinstance(outcome, dict) for outcome in outcomes] == [False, True, True, True, True, True] * 2
    expected = detect_and_describe(read_grey(photos / "d" / "y.jpg"), load(SETTINGS.model), max_keypoints=150)
    for outcome in (outcomes[5], outcomes[11]):
        assert isinstance(outcome, dict)
        np.testing.assert_array_equal(outcome["frames"], expected.frames)
        np.testing.assert_allclose(np.asarray(outcome["descriptors"]), expected.descriptors, atol=1e-6)


def test_a_bad_mask_fails_its_image_alone(photos: Path, tmp_path: Path) -> None:
    Image.new("L", (5, 5), 1).save(tmp_path / "mask.png")
    files = tuple(ImageFile(photos / name, None) for name in NAMES[:2])
    task = ImageTask((*files, ImageFile(photos / "d" / "y.jpg", tmp_path / "mask.png")), SETTINGS, "cpu")
    first, second, third = describe_task(task)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert isinstance(third, Failure)
    assert third.line.startswith(f"{photos / 'd' / 'y.jpg'}: ")
    assert "mask" in third.line


def test_ray_and_a_gpu_do_not_go_together(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="the engine ray describes on CPUs"):
        describe_folder(photos, tmp_path / "f", SETTINGS, device="cuda", engine="ray")
