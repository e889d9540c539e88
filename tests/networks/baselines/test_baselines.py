"""Loading of baselines, and the claims of docs/baselines.md."""

import re
from pathlib import Path

import numpy as np
import pytest

import doap
from doap import DoapError
from doap.features import ModelDescriber
from doap.images.frames import detect_dog
from doap.networks.baselines import list_baselines
from doap.types import Grey

PAGE = (Path(__file__).parents[3] / "docs" / "baselines.md").read_text()


def test_no_model_has_the_name_of_a_baseline() -> None:
    assert not set(doap.list_models()) & set(list_baselines())


def test_an_unknown_name_lists_models_and_baselines() -> None:
    with pytest.raises(DoapError, match=r"^siftt: [^\n]*doap-demo-128[^\n]*rootsift[^\n]*$"):
        doap.load("siftt")


def test_frames_of_an_image_are_described_by_any_name(photo: Grey) -> None:
    frames = detect_dog(photo, 30)
    orb = ModelDescriber(doap.load("orb"))
    assert (orb.name, orb.kind) == ("orb", "binary")
    assert orb.describe_frames(photo, frames).shape == (30, 32)
    assert len(doap.detect_and_describe(photo, doap.load("teblid-256"), max_keypoints=30).descriptors) == 30


def test_the_page_names_every_handcrafted_baseline_and_its_size() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|[^|]*\| (real|binary) \| ([\d,]+) \| (\d+) \|", PAGE, re.M)
    assert {name for name, *_ in rows} >= set(list_baselines())
    for name, kind, size, pixels in rows:
        try:
            model = doap.load(name)
        except DoapError:
            continue  # published weights, or a missing library
        vector = doap.describe_patches(np.zeros((1, 8, 8), np.uint8), model)
        assert (model.kind, vector.nbytes, model.input_size) == (kind, int(size.replace(",", "")), int(pixels))


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    patches = np.random.default_rng(0).integers(0, 256, (5, 65, 65), dtype=np.uint8)
    exec(code, {"patches": patches})
    assert capsys.readouterr().out.split() == re.findall(r"# prints (.*)", code)[0].split()
