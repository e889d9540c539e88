"""doap inside hloc, and hloc's matcher on doap's files: the code of the documentation, run with hloc itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from bridges.hloc.conftest import NAMES
from doap.bridges.hloc import confs, export_features, export_matches, make_conf, pair_group, register, to_hloc
from doap.bridges.hloc.plugin import ExtractorMethods, MatcherMethods
from doap.bridges.hub import save_pretrained
from doap.errors import DoapError
from doap.features import Features, Matches, detect_and_describe, match
from doap.folders import DescribeSettings, FeatureCollection, all_pairs, describe_folder, match_pairs
from doap.networks.card import HUB_WEIGHTS, read_card, write_card
from doap.networks.registry import find_weights, load
from support.hloc_package import install_hloc
from support.nested_models import nested_copy

ROOT = Path(__file__).parents[3]
PAGE, EXAMPLE = ROOT / "docs" / "bridges" / "hloc.md", ROOT / "examples" / "hloc_files.py"


def test_hloc_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hloc", None)
    with pytest.raises(DoapError, match="hloc is not installed"):
        register()


def test_prefixes_have_files_of_their_own(tmp_path: Path) -> None:
    assert make_conf("doap-256b@64")["output"] == "feats-doap-256b@64-n4096-r1600"
    path = nested_copy("doap-tiny-128", tmp_path, [64])
    conf = make_conf(f"{path}@64")
    assert conf["output"] == f"feats-nested@64-{read_card(Path(path)).sha256[:8]}-n4096-r1600"
    assert conf["model"]["model_name"] == f"{path}@64"


def test_different_models_have_different_files(tmp_path: Path) -> None:
    path = Path(nested_copy("doap-tiny-128", tmp_path, [64]))
    paths = [str(path), f"{path}@64"]
    for name in ("net-1.0", "net-1.1"):
        paths.append(str(shutil.copy(path, tmp_path / f"{name}.safetensors")))
        write_card(Path(paths[-1]), read_card(path).model_copy(update={"name": name}))
    for name in ("doap-tiny-128", "doap-demo-128"):
        paths.append(str(save_pretrained(name, tmp_path / name / "model")))
        write_card(Path(paths[-1]) / HUB_WEIGHTS, read_card(find_weights(name)).model_copy(update={"name": "a/b\\c"}))
    outputs = [make_conf(model)["output"] for model in paths]
    assert len(set(outputs)) == len(outputs)
    assert [output.rsplit("-", 3)[0] for output in outputs] == [
        *("feats-nested", "feats-nested@64", "feats-net-1.0", "feats-net-1.1", "feats-a-b-c", "feats-a-b-c")
    ]


def test_files_of_baselines_have_their_names() -> None:
    assert make_conf("rootsift")["output"] == "feats-rootsift-n4096-r1600"
    with pytest.raises(DoapError, match="nope: no such file, and no model of this name"):
        make_conf("nope")


def test_weights_that_were_replaced_are_loaded_again(tmp_path: Path) -> None:
    path, image = tmp_path / "own.safetensors", torch.rand(1, 1, 100, 100)
    for name in ("doap-demo-128", "doap-tiny-128"):
        shutil.copy(find_weights(name), path)
        write_card(path, read_card(find_weights(name)))
        extractor = ExtractorMethods()
        extractor._init({"name": "doap", "model_name": str(path), "max_keypoints": 20})
        expected = detect_and_describe(image[0], load(name), max_keypoints=20).descriptors
        np.testing.assert_array_equal(extractor._forward({"image": image})["descriptors"][0].T, expected)


def test_configurations_are_checked() -> None:
    names = ("128", "128-open", "256b", "large-128", "st-128", "st-256b", "tiny-128", "tiny-256b")
    assert set(confs) == {f"doap-{name}" for name in names}
    path = str(find_weights("doap-demo-128"))
    assert make_conf(path)["output"] == "feats-doap-demo-128-n4096-r1600"
    assert make_conf(path)["model"]["model_name"] == path
    with pytest.raises(DoapError, match="no option 'nms_radius'"):
        ExtractorMethods()._init({"name": "doap", "nms_radius": 3})
    with pytest.raises(DoapError, match="no model of this name"):
        ExtractorMethods()._init({"name": "doap", "model_name": "doap-7"})
    with pytest.raises(DoapError, match="no option 'ratio_threshold'"):
        MatcherMethods()._init({"name": "doap", "ratio_threshold": 0.8})


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("model", ["doap-tiny-128", "doap-tiny-256b"])
def test_extractor_and_matcher_give_what_doap_gives(photos: Path, model: str, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    extractor, matcher = ExtractorMethods(), MatcherMethods()
    extractor._init({"name": "doap", "model_name": model, "max_keypoints": 400})
    matcher._init({"name": "doap", "ratio": 0.95})
    network, described, data = load(model, device), [], {}
    for number, name in enumerate(["left.png", "sub/right.png"]):
        image = torch.from_numpy(np.array(Image.open(photos / name))).to(device)
        expected = detect_and_describe(image, network, max_keypoints=400)
        # Interpolation in hloc can leave 0..1 by rounding.
        actual = {key: one[0] for key, one in extractor._forward({"image": image[None, None] / 255 + 1e-7}).items()}
        if device == "cpu":  # on a GPU, the last digits can change from run to run
            np.testing.assert_array_equal(actual["keypoints"].float(), expected.keypoints)
            np.testing.assert_array_equal(actual["descriptors"], to_hloc(expected.descriptors))
            np.testing.assert_array_equal(actual["scores"], expected.responses)
        assert np.isclose(actual["keypoints"], expected.keypoints, atol=0.01).all(1).mean() > 0.98
        rows = actual["descriptors"].numpy().T
        bits = np.packbits(rows > 0, axis=1) if network.kind == "binary" else rows
        described.append(Features(expected.frames, bits, expected.size, model))
        data[f"descriptors{number}"] = actual["descriptors"][None].to(device)
    matches0 = matcher._forward(data)["matches0"][0].tolist()
    matches = match(*described, geometry=None, ratio=0.95, device=device)
    assert {(first, second) for first, second in enumerate(matches0) if second >= 0} == as_set(matches)
    assert len(matches) > 100
    none = {**data, "descriptors1": data["descriptors1"][:, :, :0]}
    assert matcher._forward(none)["matches0"].tolist() == [[-1] * 400]


@pytest.fixture(scope="module")
def hloc_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the package hloc."""
    return install_hloc(tmp_path_factory.mktemp("package"))


def run_python(folder: Path, hloc_path: Path, *arguments: str) -> str:
    """Run Python with hloc in a folder and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(hloc_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", *arguments]
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def read_matches(path: Path, pair: tuple[str, str]) -> set[tuple[int, int]]:
    """Return the matches of a pair, whichever image hloc took first."""
    with h5py.File(path) as file:
        is_reversed = pair_group(pair) not in file
        rows = file[pair_group(pair[::-1] if is_reversed else pair)]["matches0"][()]
    found = {(int(first), int(rows[first])) for first in np.flatnonzero(rows >= 0)}
    return {(second, first) for first, second in found} if is_reversed else found


def as_set(matches: Matches) -> set[tuple[int, int]]:
    return {(first, second) for first, second in matches.indices.tolist()}


def assert_equal_but_for_ties(actual: set[tuple[int, int]], first: Features, second: Features) -> None:
    """Check the mutual nearest neighbours of hloc, which takes any of equally near ones."""
    expected = as_set(match(first, second, geometry=None))
    if first.descriptors.dtype == np.uint8:
        differing = np.bitwise_xor(first.descriptors[:, None], second.descriptors)
        distances = np.unpackbits(differing, axis=2).sum(2, dtype=np.int64)
        is_nearest = [distances == distances.min(axis, keepdims=True) for axis in (0, 1)]
        is_tied = (is_nearest[0].sum(0) > 1) | (is_nearest[1].sum(1, keepdims=True) > 1)
        assert all(is_nearest[0][pair] and is_nearest[1][pair] for pair in actual)
        actual, expected = ({pair for pair in pairs if not is_tied[pair]} for pairs in (actual, expected))
    assert actual == expected
    assert len(actual) > 100


@pytest.mark.slow
@pytest.mark.parametrize("model", ["doap-tiny-128", "doap-tiny-256b"])
def test_hloc_matches_as_doap_does(photos: Path, hloc_path: Path, tmp_path: Path, model: str) -> None:
    (tmp_path / "images").symlink_to(photos)
    outputs, pair = tmp_path / "outputs", ("left.png", "sub/right.png")
    describe_folder(photos, tmp_path / "features.h5", DescribeSettings(model, max_keypoints=500), workers=1)
    match_pairs(tmp_path / "features.h5", all_pairs(NAMES), tmp_path / "matches.h5", workers=1)
    export_features(tmp_path / "features.h5", outputs / f"feats-{model}.h5")
    ours = outputs / f"feats-{model}_matches-doap_pairs-matches.h5"
    export_matches(tmp_path / "matches.h5", tmp_path / "features.h5", ours, pairs=outputs / "pairs-matches.txt")
    blocks = [block.removeprefix("python\n") for block in PAGE.read_text().split("```")[1::2] if block[:6] == "python"]
    run_python(tmp_path, hloc_path, "-c", "\n".join(blocks).replace("doap-256b", model))
    # hloc's matcher on our file.
    collection = FeatureCollection(tmp_path / "features.h5")
    assert_equal_but_for_ties(read_matches(outputs / "hloc-matches.h5", pair), *(collection[name] for name in pair))
    with h5py.File(outputs / "hloc-matches.h5") as theirs, h5py.File(ours) as own:
        assert set(theirs) <= set(own)
        rows, scores = (own["left.png/sub-right.png"][name][()] for name in ("matches0", "matching_scores0"))
        group = theirs["left.png/sub-right.png"]
        agree = (rows >= 0) & (rows == group["matches0"][()])
        np.testing.assert_allclose(group["matching_scores0"][()][agree], scores[agree], atol=1e-3)
    # Our extractor and our matcher in hloc.
    network, stored = load(model), outputs / f"feats-{model}-n4096-r1600.h5"
    expected = {
        name: detect_and_describe(np.asarray(Image.open(photos / name)), network, max_keypoints=4096) for name in NAMES
    }
    with h5py.File(stored) as file:
        for name, features in expected.items():
            np.testing.assert_allclose(file[name]["keypoints"], features.keypoints, atol=1e-4)
            descriptors = to_hloc(features.descriptors, "float16")
            np.testing.assert_allclose(file[name]["descriptors"], descriptors, atol=1e-3)
            assert file[name]["keypoints"].attrs["uncertainty"] == 1
    actual = read_matches(outputs / f"feats-{model}-n4096-r1600_matches-doap-mutual_pairs-all.h5", pair)
    exact = as_set(match(*(expected[name] for name in pair), geometry=None))
    assert len(actual & exact) >= 0.99 * len(actual | exact)  # float16; of equally near ones the first
    if model == "doap-tiny-256b":
        assert_equal_but_for_ties(actual, *(expected[name] for name in pair))


@pytest.mark.slow
def test_the_example_prints_a_table(hloc_path: Path, tmp_path: Path) -> None:
    shown = run_python(tmp_path, hloc_path, str(EXAMPLE), "--max-keypoints", "300")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in shown.splitlines()[2:]]
    assert [row[:2] for row in rows] == [["doap-tiny-256b", "float32"], ["doap-tiny-256b", "float16"]]
    for row in rows:
        ours, theirs, both = map(int, row[3:])
        assert min(ours, theirs) > 200
        assert both > 0.98 * max(ours, theirs)  # torch takes any of equally near ones
