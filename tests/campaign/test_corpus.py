"""Damaged files that once were read wrongly: each is read, or refused in one line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaign.fuzz.mutations import apply_mutations, choose_mutations
from campaign.fuzz.registry import FORMATS
from campaign.fuzz.worker import Worker

CORPUS = {path.stem: json.loads(path.read_text()) for path in Path(__file__).parent.glob("corpus/*.json")}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker([name for name in CORPUS if name in FORMATS]) as process:
        yield process


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_damage_is_one_line_or_harmless(name: str, worker: Worker) -> None:
    if name not in FORMATS:
        pytest.skip(f"{name} cannot be written here")
    entries: list[dict[str, Any]] = CORPUS[name]
    for entry in entries:
        outcome = worker.run(name, entry["mutations"])
        assert not outcome.is_finding, f"{entry}: {outcome}"


def test_a_seed_chooses_the_same_damage_each_time() -> None:
    content = bytes(range(256)) * 4
    for number in range(200):
        mutations = choose_mutations(f"7 png {number}", content, is_text=number % 2 == 0)
        assert mutations == choose_mutations(f"7 png {number}", content, is_text=number % 2 == 0)
        assert json.loads(json.dumps(mutations)) == mutations
        assert apply_mutations(b"", mutations) is not None  # any list applies to any content


@pytest.mark.parametrize(
    ("mutation", "expected"),
    [
        (["flip", 1, 0], b"acc 12 d"),
        (["set", 0, "4142"], b"ABc 12 d"),
        (["insert", 9, "41"], b"aAbc 12 d"),
        (["drop", 1, 2], b"a 12 d"),
        (["repeat", 0, 2, 2], b"ababab" + b"c 12 d"),
        (["cut", 3], b"abc"),
        (["word", 1, "-1"], b"abc -1 d"),
    ],
)
def test_mutations(mutation: list[Any], expected: bytes) -> None:
    assert apply_mutations(b"abc 12 d", [mutation]) == expected
