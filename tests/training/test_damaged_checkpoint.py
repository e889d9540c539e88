"""A damaged checkpoint never changes the weights: the one before it is used, or the training is refused."""

import json
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from doap import DoapError, PatchSet
from doap.training import checkpoint, trainer
from doap.training.checkpoint import TrainState, save_checkpoint
from doap.training.trainer import train
from support.trainings import VALIDATED, same_files, same_weights, stop_after

CHECKPOINT, PREVIOUS = "checkpoint.safetensors", "checkpoint-previous.safetensors"


@pytest.fixture(scope="module")
def stopped(patches: PatchSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folder of a training that was stopped after 60 %; not to be written to."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trainer, "CHECKPOINT_SECONDS", 0)
        with pytest.raises(KeyboardInterrupt):
            train(VALIDATED, patches, run, progress=stop_after(0.6))
    return run


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stopped, tmp_path / "run")


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def position_of(path: Path, text: bytes) -> int:
    """Return the position after a text in a file."""
    content = path.read_bytes()
    return content.index(text) + len(text)


def state_of(path: Path) -> dict[str, float]:
    with safe_open(path, framework="pt") as file:
        return dict(json.loads(file.metadata()["place"]))


WHERE: dict[str, Callable[[Path], int]] = {
    "last tensor": lambda path: path.stat().st_size - 1,
    "middle": lambda path: path.stat().st_size // 2,
    "length of the header": lambda _path: 0,
    "name of a tensor": lambda path: position_of(path, b'"momentum.'),
    "batch": lambda path: position_of(path, b'\\"batch\\": '),
    "best AP": lambda path: position_of(path, b'\\"best\\": 0.'),
    "checksum": lambda path: position_of(path, b'\\"sha256\\": \\"'),
    "name of the checksum": lambda path: position_of(path, b'\\"sha'),
}


@pytest.mark.parametrize("where", WHERE)
def test_one_flipped_bit_is_found_and_the_checkpoint_before_is_used(
    run: Path, validated: Path, patches: PatchSet, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    flip(run / CHECKPOINT, WHERE[where](run / CHECKPOINT))
    train(VALIDATED, patches, run)
    (record,) = [record.getMessage() for record in caplog.records if record.name.startswith("doap")]
    assert record.startswith(f"{run / CHECKPOINT}: was damaged (")
    assert record.endswith("); the training continues from the checkpoint before it")
    assert "\n" not in record
    assert same_weights(run, validated)
    assert same_files(run, validated, "log.csv", "validation.csv", CHECKPOINT, "best.safetensors")


def test_a_whole_checkpoint_needs_no_word(
    run: Path, validated: Path, patches: PatchSet, caplog: pytest.LogCaptureFixture
) -> None:
    train(VALIDATED, patches, run)
    assert same_weights(run, validated)
    assert not caplog.records


def test_without_an_earlier_one_a_damaged_checkpoint_is_refused(run: Path, validated: Path, patches: PatchSet) -> None:
    flip(run / CHECKPOINT, -1)
    flip(run / PREVIOUS, -1)
    for _ in range(2):
        with pytest.raises(DoapError, match=r"damaged, or not a checkpoint .*checksum.*; remove it to train from") as c:
            train(VALIDATED, patches, run)
        assert "\n" not in str(c.value)
        (run / PREVIOUS).unlink(missing_ok=True)
    (run / CHECKPOINT).unlink()
    train(VALIDATED, patches, run)
    assert same_weights(run, validated)


def test_a_process_killed_between_two_checkpoints(run: Path, validated: Path, patches: PatchSet) -> None:
    (run / CHECKPOINT).unlink()
    train(VALIDATED, patches, run)
    assert same_weights(run, validated)
    assert not (run / PREVIOUS).exists()  # a complete run keeps one


def test_the_one_before_is_one_step_older(stopped: Path) -> None:
    last, before = state_of(stopped / CHECKPOINT), state_of(stopped / PREVIOUS)
    assert (last["epoch"], last["batch"]) > (before["epoch"], before["batch"])


def test_checkpoints_of_earlier_versions_have_no_checksum(run: Path, validated: Path, patches: PatchSet) -> None:
    state = state_of(run / CHECKPOINT)
    assert len(str(state.pop("sha256"))) == 64
    save_file(load_file(run / CHECKPOINT), run / CHECKPOINT, {"place": json.dumps(state)})
    (run / PREVIOUS).unlink()
    train(VALIDATED, patches, run)
    assert same_weights(run, validated)


def test_a_full_disk_is_an_error_of_the_system_and_the_checkpoint_stays(tmp_path: Path) -> None:
    path, network = tmp_path / CHECKPOINT, torch.nn.Linear(200, 200)
    optimiser = torch.optim.SGD(network.parameters(), 0.1)
    save_checkpoint(path, network, optimiser, TrainState(1))
    content, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            save_checkpoint(path, network, optimiser, TrainState(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == [CHECKPOINT]


def test_a_checkpoint_is_written_to_the_given_file_itself(tmp_path: Path) -> None:
    """A killed run would leave another one, whose name is not known."""
    path = tmp_path / "a"
    path.touch()
    number = path.stat().st_ino
    checkpoint.save_file({"a": torch.ones(3)}, path, {"place": "{}"})
    assert path.stat().st_ino == number
    save_file({"a": torch.ones(3)}, tmp_path / "b", {"place": "{}"})
    assert path.read_bytes() == (tmp_path / "b").read_bytes()
