"""Prefixes of nested models in the commands: `--dimensions 64`, or `NAME@64` where several models are named."""

import json
from pathlib import Path

import numpy as np
import pytest
import skimage
from PIL import Image

from bridges.colmap.conftest import stay_in_process
from doap import load
from doap.bridges.dbow import read_vocabulary
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import open_methods
from doap.folders import FeatureCollection
from doap.networks.card import read_card
from support.command_line import Doap
from support.nested_models import nested_copy

KEYPOINTS = ("--max-keypoints", "60", "--device", "cpu")


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    stay_in_process(monkeypatch)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    camera = skimage.data.camera()
    for name, crop in (("a.png", camera[:300, :300]), ("b.png", camera[40:340, 30:330])):
        Image.fromarray(np.ascontiguousarray(crop)).save(tmp_path / "photos" / name)
    return tmp_path / "photos"


def test_features_of_one_length_are_not_continued_with_another(doap: Doap, photos: Path, tmp_path: Path) -> None:
    path = nested_copy("doap-tiny-128", tmp_path, [32, 64])
    options = (photos, *KEYPOINTS, "--workers", "1", "--model")
    assert doap("describe", *options, path, "-o", "short.h5", "--dimensions", 64)[0] == 0
    features = FeatureCollection("short.h5")["a.png"]
    assert (features.model, features.descriptors.shape[1]) == ("nested@64", 64)
    status, shown, _ = doap("describe", *options, f"{path}@64", "-o", "short.h5")
    assert (status, "2 of them by an earlier run" in shown) == (0, True)
    for other in ((path,), (path, "--dimensions", 32)):
        status, _, errors = doap("describe", *options, *other, "-o", "short.h5")
        assert (status, errors.count("\n")) == (1, 1)
        assert "short.h5: holds features of nested@64; choose another output" in errors
    status, _, errors = doap("describe", *options, path, "-o", "other.h5", "--dimensions", 48)
    assert (status, errors.count("\n")) == (1, 1)
    assert "nested: not trained for 48 dimensions or bits, only for 32, 64, 128" in errors
    assert not Path("other.h5").exists()
    status, _, errors = doap("describe", *options[:-1], "--model", "rootsift@64", "-o", "other.h5")
    assert "rootsift: not trained for 64 dimensions or bits, only for 128" in errors


def test_a_length_is_named_once_or_twice_alike(doap: Doap, photos: Path, tmp_path: Path) -> None:
    path = nested_copy("doap-tiny-128", tmp_path, [32, 64])
    options = (photos, *KEYPOINTS, "--workers", "1", "--model")
    assert doap("describe", *options, f"{path}@64", "-o", "short.h5", "--dimensions", 64)[0] == 0
    assert FeatureCollection("short.h5")["a.png"].model == "nested@64"
    for command in (("describe", *options, f"{path}@32", "-o", "other.h5"), ("export", f"{path}@32", "-o", "a.onnx")):
        status, _, errors = doap(*command, "--dimensions", 64)
        assert (status, errors.count("\n")) == (1, 1)
        assert "nested.safetensors@32: names 32 dimensions or bits already, not 64" in errors


def test_images_are_matched_at_a_length(doap: Doap, photos: Path, tmp_path: Path) -> None:
    path = nested_copy("doap-tiny-256b", tmp_path, [64])
    images = (photos / "a.png", photos / "b.png")
    arguments = ("match", *images, *KEYPOINTS, "--no-figure", "--json", "m.json", "--model", path)
    for options in ((), ("--precision", "int8")):
        assert doap(*arguments, "--dimensions", 64, *options)[0] == 0
        report = json.loads(Path("m.json").read_text())
        assert report["model"] == "nested@64"
        assert max(match["distance"] for match in report["matches"]) <= 64


def test_projects_and_vocabularies_have_a_length(doap: Doap, photos: Path, tmp_path: Path) -> None:
    path = nested_copy("doap-tiny-256b", tmp_path, [64])
    options = ("--model", path, "--dimensions", 64, *KEYPOINTS, "--workers", "1")
    status, _, errors = doap("colmap", photos, "-o", "project", "--min-response", "0", *options)
    assert status == 0, errors
    stored = FeatureCollection(next(iter(Path("project").glob("features*"))))["a.png"]
    assert (stored.model, stored.descriptors.shape[1]) == ("nested@64", 8)
    status, _, errors = doap("dbow", photos, "-o", "voc.yml", "-L", "2", *options)
    assert status == 0, errors
    assert read_vocabulary(Path("voc.yml")).descriptors.shape[1] == 8


def test_a_prefix_is_exported_shown_and_not_calibrated(doap: Doap, photos: Path, tmp_path: Path) -> None:
    path = nested_copy("doap-tiny-256b", tmp_path, [32, 64])
    card = Path(path).with_suffix(".json").read_bytes()
    status, shown, _ = doap("export", path, "-o", "short.onnx", "--dimensions", 64, "--precision", "int8")
    assert (status, "short.onnx: nested@64, patches to 64 bits, int8" in shown) == (0, True)
    assert "  prefixes    32, 64\n" in doap("models", path)[1]
    lines = doap("models", f"{path}@64")[1].splitlines()
    assert lines[0] == "nested@64"
    assert "  kind        binary, 64 bits, 8 bytes per descriptor" in lines
    assert "  prefixes    32" in lines
    status, _, errors = doap("calibrate", f"{path}@64", photos)
    assert (status, "calibrate the whole model" in errors) == (1, True)
    assert Path(path).with_suffix(".json").read_bytes() == card
    assert doap("export", "rootsift@128", "-o", "sift.onnx")[0] == 1


def test_several_lengths_are_compared_like_several_models(tmp_path: Path) -> None:
    path = nested_copy("doap-tiny-128", tmp_path, [32, 64])
    specs = [path, f"{path}@64", f"{path}@32", "rootsift"]
    methods = open_methods(specs, cache=DescriptorCache(tmp_path / "cache"))
    assert [method.name for method in methods] == ["nested", "nested@64", "nested@32", "rootsift"]
    assert [method.metadata()["bytes"] for method in methods] == [512, 256, 128, 512]
    assert len({method.key for method in methods}) == 4


def test_a_student_learns_from_a_prefix_by_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from doap.training.recipes.reading import read_recipe

    monkeypatch.chdir(tmp_path)
    nested_copy("doap-tiny-128", Path(), [64])
    Path("recipe.yaml").write_text("teacher: nested.safetensors@64\n")
    teacher = read_recipe("recipe.yaml").teacher
    assert teacher == f"{tmp_path / 'nested.safetensors'}@64"
    assert load(str(teacher)).network.dimensions == 64
    assert read_card(Path("nested.safetensors")).prefixes == [64]
