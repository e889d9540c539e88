from pathlib import Path

import pytest

from doap.datasets.build.settings import LookAlikeSettings
from support.command_line import Doap
from support.sets.look_alike_frames import look_alike_frames


def test_sets_are_made_and_summarised(doap: Doap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = LookAlikeSettings(patches=50, pairs=20, groups=4, points=3)
    monkeypatch.setattr(LookAlikeSettings, "quick", lambda: tiny)
    look_alike_frames().save(tmp_path / "frames")
    status, output, _ = doap("data", "look-alike", "frames", "-o", "sets", "--quick", "--seed", 7)
    assert status == 0
    lines = output.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "sets/phototour-a", "sets/phototour-b", "sets/phototour-c", "sets/romepatches, train", "sets/romepatches, test",
        "sets/hpatches",
    ]  # fmt: skip
    assert lines[0].endswith("40 pairs")
    assert "4 groups of 10 patches, 0 of them filled with jittered views" in lines[3]
    assert lines[5].endswith("6 train and 4 test sequences, 30 points")
    assert doap("data", "look-alike", "frames", "-o", "sets", "--quick", "--seed", 7)[1] == output
    status, _, error = doap("data", "look-alike", "frames", "-o", "sets")
    assert (status, error.count("\n")) == (1, 1)
    assert "was made with other settings" in error
