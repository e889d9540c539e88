from pathlib import Path

import numpy as np
import pytest

from doap.cli.progress import TrainingBar
from doap.datasets.sets.frame_set import FrameSet, encode
from doap.datasets.tilted.tilted_set import TiltedSet
from doap.networks.card import read_card
from doap.networks.frames.loading import load_frame_network
from doap.types import Grey
from support.command_line import Doap

VIEWS = ("--views", 2, "--max-tilt", 3, "--max-size", 256, "--keypoints", 300, "--workers", 1)


def save_photos(photo: Grey, folder: Path) -> None:
    photos = [encode(np.ascontiguousarray(image)) for image in (photo[:300, :400], photo[200:, 100:])]
    ids = np.arange(2)
    frames = np.tile(np.array([[[1, 0, 9], [0, 1, 9]]], np.float32), (2, 1, 1))
    FrameSet(photos, ["a.png", "b.png"], ids, frames, ids, ids, np.zeros(2, np.int64)).save(folder)


def test_views_are_made_and_a_network_is_trained(
    doap: Doap, photo: Grey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_photos(photo, tmp_path / "set")
    status, output, _ = doap("data", "tilt", "set", "-o", "tilted", *VIEWS)
    assert status == 0
    status, _, error = doap("data", "tilt", "set", "-o", "other", "--light", "dark")
    assert (status, "--light dark: unknown; choose one of easy, hard, tough" in error) == (1, True)
    status, _, error = doap("data", "tilt", "set", "-o", "other", "--detector", "none")
    assert (status, "--detector none: unknown; choose one of dog," in error) == (1, True)
    tilted = TiltedSet.open(tmp_path / "tilted")
    assert f"tilted: {tilted.frames}" in output
    assert len(tilted.homographies) == 6
    small = ("batch_size=32", "points_per_photo=8", "steps=2", "descriptor=doap-tiny-128", "network.width=4")
    options = [text for setting in small for text in ("--set", setting)]
    tasks: list[int] = []
    monkeypatch.setattr(TrainingBar, "update", lambda bar, *_, **__: tasks.append(len(bar.tasks)))
    monkeypatch.setattr(TrainingBar, "remove_task", lambda *_: pytest.fail("the time left would start again"))
    status, output, _ = doap("train-frames", "--data", "tilted", "-o", "run", "--device", "cpu", *options)
    assert status == 0
    assert "\n2 steps" in output
    assert tasks
    assert set(tasks) == {1}
    assert load_frame_network(str(tmp_path / "run" / "weights.safetensors")).settings.width == 4
    status, _, error = doap("train-frames", "--data", "tilted", "-o", "run")
    assert (status, "run: exists already" in error) == (1, True)
    status, _, error = doap("train-frames", "--data", "set", "-o", "other")
    assert (status, "make them with doap data tilt" in error) == (1, True)


def test_the_steps_done_and_the_data_are_reported(doap: Doap, photo: Grey, tmp_path: Path) -> None:
    save_photos(photo, tmp_path / "set")
    doap("data", "tilt", "set", "-o", "tilted", *VIEWS)
    settings = (
        *("batch_size=16", "points_per_photo=4", "steps=100000", "max_minutes=0.02", "joint=1"),
        *("descriptor=doap-tiny-128", "network={width: 2}"),
    )
    options = [text for setting in settings for text in ("--set", setting)]
    status, output, _ = doap("train-frames", "--data", "tilted", "-o", "run", "--device", "cpu", *options)
    assert status == 0
    steps = len((tmp_path / "run" / "log.csv").read_text().splitlines()) - 1
    assert 0 < steps < 100_000
    assert f"\n{steps} steps, loss " in output
    tuned = read_card(tmp_path / "run" / "descriptor.safetensors")
    assert tuned.name == "run"
    assert [data.path for data in tuned.origin.training_sets] == ["tilted", "train"]
    assert tuned.origin.licence == "Apache-2.0"
    status, _, error = doap("train-frames", "--data", "tilted", "-o", "other", "--set", "descriptor=sift")
    assert (status, "descriptor=sift: handcrafted, it has no weights; name a trained model" in error) == (1, True)
