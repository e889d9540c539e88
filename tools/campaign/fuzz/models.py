"""Weights and cards, checkpoints, logs and records of trainings, recipes and studies."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.io import savemat

from campaign.fuzz.formats import Format, file_in, text_file
from doap import load
from doap.experiments.study_plan import read_study
from doap.networks.conversion.matconvnet import convert_matlab
from doap.networks.conversion.reading import read_tensors
from doap.networks.l2net import L2Net
from doap.training.checkpoint import TrainState, load_checkpoint, recover_checkpoint, save_checkpoint
from doap.training.log import read_losses, read_times, read_validation
from doap.training.recipes.reading import read_recipe, read_recorded_recipe
from doap.training.run_folder import read_run
from support.small_models import make_teacher

RECIPE = """# a recipe
network: tiny
width: 8
dimensions: 16
batch_size: 128
epochs: 2
lr: 1.0
dropout: 0.1
objective: hardnet
val_fraction: 0.25
"""
STUDY = """
recipe: frames-real
settings: {bin_power: null, pooled_weight: 0, epochs: 2}
seeds: [4, 7]
tune: {lr: [0.1, 1]}
runs:
  ap:
  hardnet: {settings: {objective: hardnet, epochs: 3}, tune: {momentum: [0.5, 0.9]}}
"""
LOG = "epoch,batch,loss,lr\n0,0,0.5,0.1\n0,1,0.25,0.1\n1,0,nan,0.05\n"
VALIDATION = "epoch,ap\n0,0.5\n1,0.75\n"
RUN = json.dumps({"data": ["sets/a"], "validation": "", "split": "", "patches": "x", "device": "cpu", "devices": 1})


def _model(folder: Path) -> None:
    make_teacher(folder / "model.safetensors")


def _read_model(file: Path) -> list[torch.Tensor]:
    model = load(file.with_suffix(".safetensors"), fast=False)
    return [*model.network.state_dict().values()]


def _network() -> tuple[torch.nn.Module, torch.optim.SGD]:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    return network, torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)


def _checkpoint(folder: Path) -> Path:
    network, optimiser = _network()
    network(torch.ones(2, 4)).sum().backward()
    optimiser.step()
    save_checkpoint(folder / "checkpoint.safetensors", network, optimiser, TrainState(1, 2, 0.5))
    return folder / "checkpoint.safetensors"


def _read_checkpoint(file: Path) -> list[torch.Tensor]:
    network, optimiser = _network()
    recover_checkpoint(file)
    state = load_checkpoint(file, network, optimiser)
    momenta = [optimiser.state[parameter]["momentum_buffer"] for parameter in network.parameters()]
    return [torch.tensor([state.epoch, state.batch, state.best]), *network.state_dict().values(), *momenta]


def _pickled(folder: Path, old: bool) -> Path:
    torch.manual_seed(0)
    weights = {"state_dict": L2Net(8, width=2).state_dict()}
    torch.save(weights, folder / "net.pth", _use_new_zipfile_serialization=not old)
    return folder / "net.pth"


def _matconvnet(folder: Path) -> Path:
    """Write a narrow L2-Net as its authors store it."""
    layers: list[dict[str, Any]] = []
    for size, inputs, outputs in ((3, 1, 2), *5 * [(3, 2, 2)], (8, 2, 3)):
        weights = _cell(np.ones((size, size, inputs, outputs), np.float32), np.zeros((1, outputs), np.float32))
        moments = np.ones((outputs, 2))
        layers.append({"type": "conv", "weights": weights, "stride": 1, "pad": size // 2})
        layers.append({"type": "bnormPair", "weights": _cell(np.ones(outputs), np.zeros(outputs), moments)})
    savemat(folder / "net.mat", {"net": {"layers": _cell(*layers)}, "pixMean": np.full((32, 32), 0.5)})
    return folder / "net.mat"


def _cell(*values: object) -> NDArray[np.object_]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _times(file: Path) -> object:
    return read_losses(file.parent), read_times(file.parent)


def _of_folder(read: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda file: read(file.parent)


def model_formats() -> list[Format]:
    """Return the formats of models and trainings."""
    return [
        Format("weights", file_in(_model, "model.safetensors"), _read_model, is_checked=True),
        Format("card", file_in(_model, "model.json"), _read_model, is_text=True),
        Format("checkpoint", _checkpoint, _read_checkpoint, is_checked=True),
        Format("torch-checkpoint", partial(_pickled, old=False), read_tensors),
        Format("torch-checkpoint-old", partial(_pickled, old=True), read_tensors),
        Format("matconvnet", _matconvnet, partial(convert_matlab, centre_surround=False)),
        Format("recipe", text_file("recipe.yaml", RECIPE), read_recipe, is_text=True),
        Format("recorded-recipe", text_file("recipe.yaml", RECIPE), read_recorded_recipe, is_text=True),
        Format("study", text_file("study.yaml", STUDY), read_study, is_text=True),
        Format("log.csv", text_file("log.csv", LOG), _times, is_text=True),
        Format("validation.csv", text_file("validation.csv", VALIDATION), _of_folder(read_validation), is_text=True),
        Format("run.json", text_file("run.json", RUN), _of_folder(read_run), is_text=True),
    ]
