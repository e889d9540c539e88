"""The machinery of killed commands."""

import os
import random
import time
from pathlib import Path

import pytest

from campaign.kills import kill
from campaign.running.clock import TIMES, make_clock_jump, set_times
from campaign.running.preloaded import preloaded

TESTS, TOOLS = Path(__file__).parents[1], Path(__file__).parents[2] / "tools"


@pytest.mark.slow
def test_a_killed_download_ends_as_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{TOOLS}{os.pathsep}{TESTS}")
    result = kill(4, 0, 120, ["data download"], lambda _: None)
    assert result.findings == []
    assert result.counts[0]["cases"] == 4
    assert result.counts[0]["compared"] > 0


@pytest.mark.slow
def test_a_forked_command_prints_its_error_and_can_be_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{TOOLS}{os.pathsep}{TESTS}")
    with preloaded() as server:
        ended = server.run(["data", "info", "nowhere"], tmp_path, {})
        assert (ended.status, ended.last_line.startswith("doap: nowhere: ")) == (1, True)
        group = server.start(["app", "--port", "0", "--no-browser"], tmp_path, {})
        assert server.wait(group, tmp_path, 0.1) is None
        server.kill(group, tmp_path)
        assert not Path(f"/proc/{group}").exists()


def test_clocks_jump_and_files_have_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", time.time)  # restored at the end, with the next
    monkeypatch.setattr(time, "time_ns", time.time_ns)
    make_clock_jump("0")
    years = [(time.time() - now) / 86_400 / 365 for _ in range(20)]
    assert min(years) < -5 < 5 < max(years)
    paths = [tmp_path / f"{number}" for number in range(60)]
    for path in paths:
        path.touch()
    set_times(tmp_path, random.Random(0))
    assert {path.stat().st_mtime for path in paths} == set(TIMES)
