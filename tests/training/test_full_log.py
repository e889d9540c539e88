"""A log that cannot be written, as on a full disk."""

import errno
import os
import threading
from pathlib import Path

import pytest

from doap import PatchSet, train
from doap.training.log import STEPS_FILE, Log
from support.trainings import SMALL, noisy_patches

RECORDS = "tensorboard.summary.writer.record_writer.RecordWriter"


@pytest.fixture(scope="module")
def patches() -> PatchSet:
    return noisy_patches()


def fail(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_error_names_the_run_and_no_thread_prints(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hook = threading.excepthook
    monkeypatch.setattr(f"{RECORDS}.write", fail)
    with pytest.raises(OSError, match="No space left") as raised:
        train(SMALL, patches, tmp_path / "run")
    assert raised.value.filename == str(tmp_path / "run")
    assert capfd.readouterr().err == ""
    assert threading.excepthook is hook


def test_all_files_are_closed_if_one_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{RECORDS}.close", fail)
    with pytest.raises(OSError, match="No space left"), Log(tmp_path, 0, 0) as log:
        log._steps.write("0,0,1.0,0.1\n")
    assert (tmp_path / STEPS_FILE).read_text().endswith("0,0,1.0,0.1\n")
