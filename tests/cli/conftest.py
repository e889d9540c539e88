"""The command line as a fixture."""

import math
import sys
from pathlib import Path

import pytest

from doap.cli import progress
from doap.cli.main import main
from support.command_line import Doap


@pytest.fixture
def doap(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Doap:
    """Call `main` with arguments in an empty folder; gives exit status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DOAP_DATA", raising=False)
    monkeypatch.setattr(progress, "LINE_SECONDS", math.inf)  # lines of slow work depend on the machine

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["doap", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call
