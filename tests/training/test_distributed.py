import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from doap import PatchSet, load
from doap.training.distributed import is_rank_zero, launcher_processes
from doap.training.log import read_losses
from doap.training.recipes.recipe import Recipe
from doap.training.trainer import train


@pytest.fixture
def patches(tmp_path: Path) -> PatchSet:
    """60 groups of different sizes in 3 sequences, some of which overlap."""
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), random.integers(2, 6, 60))
    shapes = random.integers(0, 256, (60, 8, 8)).repeat(4, 1).repeat(4, 2)
    pixels = shapes[groups] + random.normal(0, 40, (len(groups), 32, 32))
    overlaps = np.array([[0, 1], [5, 9], [30, 31]])
    patches = PatchSet([pixels.clip(0, 255).astype(np.uint8)], groups, groups // 20, overlaps=overlaps)
    patches.save(tmp_path / "set")
    return patches


COMMON = Recipe(width=2, dimensions=16, batch_size=80, epochs=1, dropout=0.2, augment=True, precision="fp32")
TEACHER = {"teacher": "doap-demo-128", "distillation_weight": 5.0, "network": "tiny"}
SETTINGS: dict[str, dict[str, object]] = {
    "ap": {"kind": "binary", "pooled_weight": 1.0},
    "hardnet": {"objective": "hardnet"},
    "nested": {**TEACHER, "kind": "binary", "prefixes": [8], "matching_weight": 1.0},
    "l2net": {"objective": "l2net"},
    "tiny-similarity": TEACHER,
    "tiny-imitation": {**TEACHER, "dimensions": 128},
}
RECIPES = {name: COMMON.model_copy(update=settings) for name, settings in SETTINGS.items()}
# Trains all recipes in the current folder, one after the other, in one process or in several.
TRAIN_ALL = """
import sys
from pathlib import Path
from doap import PatchSet
from doap.training.recipes.reading import read_recipe
from doap.training.trainer import train

for path in sorted(Path().glob("*.yaml")):
    run = Path(sys.argv[1]) / path.stem
    train(read_recipe(path), PatchSet.open(Path("set")), run, device="cpu", devices=int(sys.argv[2]))
"""


@pytest.mark.slow
def test_two_processes_train_what_one_does(patches: PatchSet, tmp_path: Path) -> None:
    for name, recipe in RECIPES.items():
        (tmp_path / f"{name}.yaml").write_text(recipe.to_yaml())
    for number, output in enumerate(("one", "two"), 1):  # both in fresh processes: what else one has done is no noise
        run_script(tmp_path, TRAIN_ALL, output, str(number))
    for name, recipe in RECIPES.items():
        one, two = (load(tmp_path / run / name / "weights.safetensors", fast=False) for run in ("one", "two"))
        start = train(recipe.model_copy(update={"lr": 1e-9}), patches, tmp_path / "start" / name)
        assert json.loads((tmp_path / "two" / name / "run.json").read_text())["devices"] == 2
        check_weights(one.network.state_dict(), two.network.state_dict(), start.network.state_dict())
        losses = [read_losses(tmp_path / run / name) for run in ("one", "two")]
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3, err_msg=name)


def check_weights(one: dict[str, Tensor], two: dict[str, Tensor], start: dict[str, Tensor]) -> None:
    """Check that two trainings of the same start differ by noise."""
    for name, value in one.items():
        if name.endswith("weight"):  # noise, though it grows where an activation falls on either side of 0
            moved = (value - start[name]).norm()
            assert (two[name] - value).norm() < 0.05 * moved
        else:
            torch.testing.assert_close(two[name], value, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_two_processes_with_batches_in_chunks(patches: PatchSet, tmp_path: Path) -> None:
    """Ranks have different numbers of chunks, but rank one common batch."""
    recipe = Recipe(width=2, dimensions=16, batch_size=83, epochs=4, lr=2.0, chunk=41, precision="fp32")
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    words = ["train", "recipe.yaml", "--data", "set", "-o", "two", "--device", "cpu", "--devices", "2"]
    run_script(tmp_path, "from doap.cli.main import main\n\nmain()\n", *words)
    losses = read_losses(tmp_path / "two")
    first = recipe.model_copy(update={"chunk": None, "epochs": 1})
    train(first, patches, tmp_path / "one")
    assert losses[0] == pytest.approx(read_losses(tmp_path / "one")[0], abs=0.06)
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.03


def run_script(folder: Path, code: str, *words: str) -> None:
    """Run a script, which can start more processes of itself, with one thread per process."""
    (folder / "script.py").write_text(code)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "script.py", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_processes_of_launchers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "RANK", "SLURM_PROCID", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert launcher_processes() is None
    assert is_rank_zero()
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SLURM_NNODES", "2")
    monkeypatch.setenv("SLURM_PROCID", "3")
    assert launcher_processes() == (4, 2)
    assert not is_rank_zero()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("RANK", "0")
    assert launcher_processes() == (2, 3)
    assert is_rank_zero()
