"""Uploads of visitors who chose the same picture."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from doap.app.holders import UploadHolders, open_holders
from doap.app.match.events import MatchEvents
from doap.app.match.examples import list_examples
from doap.app.match.session import SessionStore
from doap.app.settings import AppSettings


def request(visitor: str) -> Any:
    return SimpleNamespace(session_hash=visitor)


def match(events: MatchEvents, visitor: str, paths: list[Path]) -> None:
    first, second = map(str, paths)
    for _ in events.run(first, second, ["orb"], 100, 1.0, "fundamental", 1.5, False, "verified", request(visitor)):
        pass


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Three uploads."""
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path, size in zip(paths, (300, 310, 320), strict=True):
        Image.open(list_examples()[0].paths[0]).resize((size, 200)).save(path)
    return paths


def test_pictures_that_others_use_are_not_deleted(pictures: list[Path]) -> None:
    settings = AppSettings(port=0, max_sessions=7)
    events = MatchEvents(settings, SessionStore(7))
    match(events, "a", pictures[:2])
    match(events, "b", pictures[:2])
    match(events, "b", pictures[1:])  # the first one stays: it is still used by "a"
    assert all(path.exists() for path in pictures)
    open_holders(settings).hold("c", "rank", pictures[:1])
    events.leave(request("a"))
    assert all(path.exists() for path in pictures)
    events.leave(request("b"))
    assert [path.exists() for path in pictures] == [True, False, False]


def test_a_picture_is_deleted_when_another_is_chosen_instead(pictures: list[Path]) -> None:
    events = MatchEvents(AppSettings(port=0, max_sessions=8), SessionStore(8))
    match(events, "a", pictures[:2])
    match(events, "a", pictures[1:])
    assert [path.exists() for path in pictures] == [False, True, True]


def test_the_oldest_holders_are_dropped(pictures: list[Path]) -> None:
    holders = UploadHolders(2)
    for visitor, path in zip("abc", pictures, strict=True):
        holders.hold(visitor, "learn", [path])
    holders.delete(pictures)
    assert [path.exists() for path in pictures] == [False, True, True]
