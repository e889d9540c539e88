"""The door: names, messages, and what the page about peers promises."""

import re
from pathlib import Path

import numpy as np
import pytest

import doap
from doap import DoapError
from doap.features import PatchDescriber
from doap.images.frames import detect_dog
from doap.networks.baselines import list_baselines

PAGE = (Path(__file__).parents[3] / "docs" / "peers.md").read_text()


def test_models_and_peers_are_listed_apart() -> None:
    assert not set(doap.list_models()) & set(list_baselines())


def test_an_unknown_name_lists_models_and_peers() -> None:
    with pytest.raises(DoapError, match=r"^siftt: [^\n]*doap-demo-128[^\n]*rootsift[^\n]*$"):
        doap.load("siftt")


def test_frames_of_an_image_are_described_by_any_name(photo: np.ndarray) -> None:
    frames = detect_dog(photo, 30)
    orb = PatchDescriber(doap.load("orb"))
    assert (orb.name, orb.kind) == ("orb", "binary")
    assert orb.describe_frames(photo, frames).shape == (30, 32)
    assert len(doap.detect_and_describe(photo, doap.load("teblid-256"), 30).descriptors) == 30


def test_the_page_names_every_handcrafted_peer_and_its_size() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|[^|]*\| (real|binary) \| ([\d,]+) \| (\d+) \|", PAGE, re.M)
    assert {name for name, *_ in rows} >= set(list_baselines())
    for name, kind, size, pixels in rows:
        try:
            model = doap.load(name)
        except DoapError:
            continue  # published weights, or a library that is not here
        described = doap.describe(np.zeros((1, 8, 8), np.uint8), model)
        assert (model.kind, described.nbytes, model.input_size) == (kind, int(size.replace(",", "")), int(pixels))


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    patches = np.random.default_rng(0).integers(0, 256, (5, 65, 65), dtype=np.uint8)
    exec(code, {"patches": patches})
    assert capsys.readouterr().out.split() == re.findall(r"# prints (.*)", code)[0].split()
