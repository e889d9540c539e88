"""The copied program and the copied commands, executed and compared with what the page holds."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from doap.app.match.code import command_lines, python_code
from doap.app.match.examples import find_example, list_examples
from doap.app.match.pair import MatchOptions, match_pictures
from doap.app.match.pictures import read_picture
from doap.app.match.session import MatchSession
from doap.app.settings import AppSettings
from doap.types import no_step_progress


def make_session(options: MatchOptions, paths: tuple[Path, Path]) -> MatchSession:
    (a, first), (b, second) = (read_picture(str(path), AppSettings()) for path in paths)
    return MatchSession(
        (a, b), options, tuple(match_pictures((a, b), (first, second), options, "cpu", no_step_progress))
    )


def uploads(folder: Path) -> tuple[Path, Path]:
    """Return two pictures with names that a shell and Python have to quote."""
    first, second = (Image.open(path).resize((370, 250)) for path in list_examples()[0].paths)
    first.save(folder / "it's left.png")
    second.save(folder / "-right $HOME.png")
    return folder / "it's left.png", folder / "-right $HOME.png"


PLAIN = MatchOptions(("doap-tiny-256b", "orb"), 300, 0.95, "homography", 2.5)


def test_the_program_gives_the_matches_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session(PLAIN, uploads(tmp_path))
    monkeypatch.chdir(tmp_path)
    for number, method in enumerate(PLAIN.methods):
        names: dict[str, Any] = {}
        options = MatchOptions((method,), PLAIN.keypoints, PLAIN.ratio, PLAIN.geometry, PLAIN.threshold)
        one = MatchSession(session.pictures, options, (session.results[number],))
        exec(python_code(one, "cpu"), names)
        expected = session.results[number].matches
        np.testing.assert_array_equal(names["matches"].indices, expected.indices)
        np.testing.assert_array_equal(names["matches"].inliers, expected.inliers)
    exec(python_code(session, "cpu"), names)
    assert names["name"] == "orb"


@pytest.mark.slow
def test_the_program_of_wide_matches_names_the_example() -> None:
    example = find_example("coffee, seen from the side (needs wide)")
    options = MatchOptions(("orb",), 400, None, "homography", 3.0, wide=True)
    session = make_session(options, example.paths)
    assert str(example.paths[0]) in python_code(session, "cpu")
    names: dict[str, Any] = {}
    exec(python_code(session, "cpu"), names)
    assert names["result"].tilts
    np.testing.assert_array_equal(names["matches"].indices, session.results[0].matches.indices)


@pytest.mark.slow
def test_the_commands_give_the_matches_of_the_page(tmp_path: Path) -> None:
    session = make_session(PLAIN, uploads(tmp_path))
    program = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{program}{os.pathsep}{os.environ['PATH']}"}
    for line, result, number in zip(command_lines(session, "cpu").splitlines(), session.results, (1, 2), strict=True):
        subprocess.run(line, shell=True, check=True, cwd=tmp_path, env=environment, capture_output=True)
        report = json.loads((tmp_path / f"matches-{number}.json").read_text())
        first, second = result.matches.points(result.first, result.second)
        assert [row["a"] for row in report["matches"]] == first.tolist()
        assert [row["b"] for row in report["matches"]] == second.tolist()
        assert [row["verified"] for row in report["matches"]] == result.matches.inliers.tolist()
