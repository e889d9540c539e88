import json
import tracemalloc
from pathlib import Path

import pytest

from doap.parsing import json_files
from doap.parsing.json_files import MAX_DEPTH, parse_json, read_json


def test_files_of_other_editors_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"size": [32, 1e3, "ä"]}', encoding="utf-8-sig")
    assert read_json(tmp_path / "a.json") == {"size": [32, 1000.0, "ä"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"name": "d\xe4p"}', "can't decode byte 0xe4"),
        (b"", "Expecting value"),
        (100_000 * b"[", "nested deeper than 64 levels"),
        (70 * b'{"a": ' + b"1" + 70 * b"}", "nested deeper than 64 levels"),
        (5000 * b"9", "4300 digits"),
    ],
)
def test_every_fault_is_a_value_error_of_one_line(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_json(content)
    assert "\n" not in str(caught.value)


def test_a_small_file_needs_little_memory(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1]")
    tracemalloc.start()
    try:
        assert read_json(tmp_path / "a.json") == [1]
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_files_of_several_blocks_are_read_and_too_large_ones_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = list(range(300_000))
    (tmp_path / "a.json").write_text(json.dumps(values))
    assert read_json(tmp_path / "a.json") == values
    monkeypatch.setattr(json_files, "MAX_BYTES", 1 << 20)
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        read_json(tmp_path / "a.json")


def test_the_largest_depth() -> None:
    value = parse_json(MAX_DEPTH * "[" + MAX_DEPTH * "]")
    for _ in range(MAX_DEPTH - 1):
        (value,) = value
    assert value == []
