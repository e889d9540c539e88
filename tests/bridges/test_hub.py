"""Folders, Hugging Face's library and torch.hub, all offline.

The client is the real huggingface_hub; what stands in for the hub is a server on loopback that stores commits and
serves them (`support.hub_server`). It takes every file as part of the commit, without Git LFS or Xet.
"""

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import doap
from doap.bridges.hub import from_pretrained, push_to_hub, save_pretrained
from doap.networks.architecture import Architecture, build_network
from doap.networks.card import Origin, read_card, write_card
from doap.networks.descriptor import Descriptor
from doap.networks.registry import WEIGHTS_FOLDER
from support.hub_server import HubServer, serving_hub
from support.nested_models import nested_copy
from support.packages import install

ROOT = Path(__file__).parents[2]
PATCHES = np.random.default_rng(0).integers(0, 256, (20, 32, 32), dtype=np.uint8)
OLDEST = "huggingface_hub==0.25.0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pretrained("doap-tiny-256b", tmp_path_factory.mktemp("hub") / "model")


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "model"))


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with serving_hub() as server:
        yield server


def python(program: str, *arguments: str, path: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process: huggingface_hub reads its environment when it is imported."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    variables = {**kept, "PYTHONPATH": path, "HF_HUB_DISABLE_XET": "1", "no_proxy": "*", **environment}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], env=variables, capture_output=True, text=True, timeout=120
    )


# Folders


def test_a_folder_holds_the_weights_byte_for_byte_and_the_card(folder: Path) -> None:
    shipped = WEIGHTS_FOLDER / "doap-tiny-256b.safetensors"
    assert {file.name for file in folder.iterdir()} == {"model.safetensors", "config.json", "README.md"}
    assert (folder / "model.safetensors").read_bytes() == shipped.read_bytes()
    assert read_card(folder / "model.safetensors") == read_card(shipped)
    expected = doap.describe_patches(PATCHES, doap.load("doap-tiny-256b"))
    for model in (doap.load(folder), doap.load(folder / "model.safetensors"), from_pretrained(str(folder))):
        assert model.extents == read_card(shipped).extents
        np.testing.assert_array_equal(doap.describe_patches(PATCHES, model), expected)
    assert not from_pretrained(folder, fast=False).training


def test_the_page_has_the_metadata_of_the_hub(folder: Path) -> None:
    from huggingface_hub import ModelCard

    page = ModelCard.load(folder / "README.md")
    card = read_card(folder / "model.safetensors")
    assert page.data.license == "apache-2.0"
    assert page.data.library_name == "doap"
    assert "256 bits" in page.text
    for source in card.origin.sources:
        assert f"| {source.source} | {source.licence} | {source.photos:,} |" in page.text
    assert card.origin.notes["limits"] in page.text


@pytest.mark.parametrize(("licence", "name"), [("Research only", "research-only"), ("", "unknown")])
def test_licences_that_the_hub_does_not_know_are_named(tmp_path: Path, licence: str, name: str) -> None:
    from huggingface_hub import ModelCard

    architecture = Architecture(dimensions=16, width=2)
    descriptor = Descriptor(build_network(architecture), "real", 12.0, "mine")
    doap.save(descriptor, tmp_path / "mine.safetensors", architecture, Origin(licence=licence))
    data = ModelCard.load(save_pretrained(tmp_path / "mine.safetensors", tmp_path / "out") / "README.md").data
    assert (data.license, data.license_name) == ("other", name)


def test_pytorch_model_hub_mixin_reads_the_folder(folder: Path) -> None:
    """Its conventions: the names of the files, config.json as arguments, tensors as of `state_dict`."""
    from huggingface_hub import PyTorchModelHubMixin

    class Network(nn.Module, PyTorchModelHubMixin):
        def __init__(self, name: str, architecture: dict[str, Any], **_: Any) -> None:
            super().__init__()
            self.name = name
            for key, layer in build_network(Architecture(**architecture)).named_children():
                self.add_module(key, layer)

    network = Network.from_pretrained(folder, strict=True)
    expected = doap.load(folder, fast=False).network.state_dict()
    assert network.name == "doap-tiny-256b"
    assert network.state_dict().keys() == expected.keys()
    assert all(torch.equal(value, expected[key]) for key, value in network.state_dict().items())


def test_commands_read_the_folder(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from doap.cli.main import app

    app(["models", str(copied)], standalone_mode=False)
    assert "doap-tiny-256b" in capsys.readouterr().out


def damage(folder: Path) -> None:
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (folder / "model.safetensors").write_bytes(content)


def foreign(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": 768}))


def other_tensors(folder: Path) -> None:
    save_file({"layer": torch.zeros(3)}, folder / "model.safetensors")
    card = json.loads((folder / "config.json").read_text())
    card["sha256"] = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps(card))


def remove(name: str) -> Any:
    return lambda folder: (folder / name).unlink()


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (damage, r"model\.safetensors: its SHA-256 differs from that in config\.json; copy both files again$"),
        (foreign, r"config\.json: not a model card \(name: Field required\)$"),
        (other_tensors, "its tensors are not those of the architecture on its card$"),
        (remove("config.json"), r"not the folder of a model; it has no config\.json$"),
        (pickled, r"not the folder of a model; it has no model\.safetensors$"),
    ],
)
def test_corrupt_and_foreign_folders_are_refused_in_one_line(copied: Path, change: Any, line: str) -> None:
    change(copied)
    with pytest.raises(doap.DoapError, match=line) as error:
        from_pretrained(copied)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [3, None, b"name"])
def test_folders_are_paths(value: Any) -> None:
    with pytest.raises(doap.DoapError, match="the folder or repository must be a path or a name, not "):
        from_pretrained(value)
    with pytest.raises(doap.DoapError, match="the folder must be a path or a name, not "):
        save_pretrained("doap-demo-128", value)


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("doap-99", "doap-99: no such file, and no model of this name"),
        ("rootsift", "rootsift: a baseline without a card"),
        (doap.load("doap-demo-128"), "must be the name or path that doap.load takes, not Descriptor; doap.save writes"),
    ],
)
def test_a_failed_save_leaves_nothing(tmp_path: Path, model: Any, line: str) -> None:
    with pytest.raises(doap.DoapError, match=line):
        save_pretrained(model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_prefix_is_a_model_of_its_own(tmp_path: Path) -> None:
    path = nested_copy("doap-tiny-128", tmp_path, [32, 64])
    saved = save_pretrained(f"{path}@64", tmp_path / "short")
    card, model = read_card(saved / "model.safetensors"), from_pretrained(saved)
    assert (card.name, model.name, model.network.dimensions, model.prefixes) == ("nested@64", "nested@64", 64, (32,))
    expected = doap.describe_patches(PATCHES, doap.load(path, dimensions=64))
    np.testing.assert_array_equal(doap.describe_patches(PATCHES, model), expected)
    whole = save_pretrained(path, tmp_path / "whole")
    np.testing.assert_array_equal(doap.describe_patches(PATCHES, from_pretrained(whole, dimensions=64)), expected)
    assert from_pretrained(saved, dimensions=32).name == "nested@32"
    assert from_pretrained(saved, int8=True).network.dimensions == 64


def test_a_prefix_has_its_own_weights_though_the_name_of_the_whole_has_a_length(tmp_path: Path) -> None:
    path = Path(nested_copy("doap-tiny-128", tmp_path, [64]))
    write_card(path, read_card(path).model_copy(update={"name": "nested@64"}))
    model = from_pretrained(save_pretrained(f"{path}@64", tmp_path / "short"))
    assert (model.name, model.network.dimensions) == ("nested@64", 64)
    whole = save_pretrained(path, tmp_path / "whole") / "model.safetensors"
    assert whole.read_bytes() == path.read_bytes()


def test_folders_and_repositories_are_named_with_a_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = save_pretrained(nested_copy("doap-tiny-256b", tmp_path, [32, 64]), tmp_path / "whole")
    assert from_pretrained(f"{saved}@64").name == from_pretrained(f"{saved}@64", dimensions=64).name == "nested@64"
    with pytest.raises(doap.DoapError, match="whole@32: names 32 dimensions or bits already, not 64"):
        from_pretrained(f"{saved}@32", dimensions=64)
    download = Mock(return_value=str(saved))
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert from_pretrained("owner/nested@32").name == "nested@32"
    assert download.call_args.args == ("owner/nested",)


def test_no_folder_is_overwritten(copied: Path) -> None:
    before = {file.name: file.read_bytes() for file in copied.iterdir()}
    with pytest.raises(doap.DoapError, match="exists already; remove it or choose another name"):
        save_pretrained("doap-tiny-128", copied)
    assert {file.name: file.read_bytes() for file in copied.iterdir()} == before


# Hugging Face's hub

PROGRAM = """
import sys, huggingface_hub
from doap.bridges.hub import from_pretrained, push_to_hub
from doap.errors import DoapError
print(huggingface_hub.__version__)
if "push" in sys.argv:
    print(push_to_hub("doap-tiny-128", "user/doap-tiny-128", token="hf_test", commit_message="First"))
model = from_pretrained("user/doap-tiny-128")
print(model.name, model.extent_for("dog"))
try:
    from_pretrained("user/other")
except DoapError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("requirement", ["", OLDEST])
def test_a_model_is_uploaded_downloaded_and_loaded_without_the_hub(
    hub: HubServer, tmp_path: Path, requirement: str
) -> None:
    path = str(install(tmp_path / "site", requirement)) if requirement else ""
    environment = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home")}
    online = python(PROGRAM, "push", path=path, **environment)
    assert online.returncode == 0, online.stderr
    version, address, loaded, refused = online.stdout.splitlines()
    assert version == (requirement.partition("==")[2] or metadata.version("huggingface_hub"))
    assert address.startswith(f"{hub.address}/user/doap-tiny-128/commit/")
    assert loaded == "doap-tiny-128 24.0"
    assert refused.startswith("user/other: no such folder, and not loaded from the hub (")
    files = hub.repositories["user/doap-tiny-128"]
    assert set(files) == {"model.safetensors", "config.json", "README.md"}
    assert files["model.safetensors"] == (WEIGHTS_FOLDER / "doap-tiny-128.safetensors").read_bytes()
    assert 'from_pretrained("user/doap-tiny-128")' in files["README.md"].decode()
    commits = [lines for method, name, lines in hub.requests if method == "POST" and "/commit/" in name]
    assert [line["value"]["summary"] for lines in commits for line in lines if line["key"] == "header"] == ["First"]

    count = len(hub.requests)
    offline = python(PROGRAM, path=path, **environment, HF_HUB_OFFLINE="1")
    assert offline.returncode == 0, offline.stderr
    assert offline.stdout.splitlines()[:2] == [version, loaded]
    assert offline.stdout.splitlines()[2].startswith("user/other: no such folder, and not loaded from the hub (")
    assert len(hub.requests) == count


def test_names_of_repositories_are_checked() -> None:
    with pytest.raises(doap.DoapError, match=r"^a/b/c: no such folder, and not loaded from the hub \(") as error:
        from_pretrained("a/b/c", local_files_only=True)
    assert "\n" not in str(error.value)
    with pytest.raises(doap.DoapError, match=r"^a/b/c: not uploaded \("):
        push_to_hub("doap-demo-128", "a/b/c", token="hf_test")


# torch.hub

TORCH_HUB = """
import runpy, sys, torch
from pathlib import Path
root = sys.argv[1]
sys.path = [entry for entry in sys.path if not Path(entry, "doap").is_dir()]  # as if doap were not installed
trained = torch.hub.load(root, "doap_tiny_128", source="local")
new = torch.hub.load(root, "doap_tiny_256b", source="local", pretrained=False)
for model in (trained, new):
    print(model.name, tuple(model(torch.rand(3, 1, 32, 32) * 255).shape), model.training)
print(sys.modules["doap"].__file__)
print(" ".join(sorted(name for name in runpy.run_path(root + "/hubconf.py") if name.startswith("doap_"))))
"""


@pytest.mark.slow
def test_torch_hub_loads_models_of_a_checkout(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "src").mkdir(parents=True)
    shutil.copy(ROOT / "hubconf.py", checkout)
    (checkout / "src" / "doap").symlink_to(ROOT / "src" / "doap")
    done = python(TORCH_HUB, str(checkout))
    assert done.returncode == 0, done.stderr
    trained, new, location, entries = done.stdout.splitlines()
    assert trained == "doap-tiny-128 (3, 128) False"
    assert new == "doap-tiny-256b (3, 32) True"
    assert location.startswith(str(checkout))
    assert entries.split() == [name.replace("-", "_") for name in doap.list_models() if "demo" not in name]


def test_untrained_models_of_torch_hub_have_the_card_and_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    create = runpy.run_path(str(ROOT / "hubconf.py"))["doap_128"]
    card = read_card(WEIGHTS_FOLDER / "doap-128.safetensors")
    assert list(create(pretrained=False).prefixes) == card.prefixes == [32, 64]
    for pretrained in (False, True):
        with pytest.raises(doap.DoapError, match=r"^device cuda:99: not available here"):
            create(pretrained=pretrained, device="cuda:99")


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "bridges" / "hubs.md").read_text(), re.DOTALL)
    exec(code, names)
    assert names["model"].name == names["same"].name == "doap-tiny-256b"
