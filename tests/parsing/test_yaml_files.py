import time
from pathlib import Path

import pytest

from doap.parsing.yaml_files import MAX_BYTES, parse_yaml, read_yaml


def nested_aliases(first: str, alias: str, levels: int) -> str:
    """Return YAML whose anchors each repeat the one before ten times."""
    lines = [f"a0: &a0 {first}"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} {alias.replace('*', ', '.join(10 * [f'*a{level - 1}']))}")
    return "\n".join(lines)


def test_aliases_and_merged_keys_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("base: &base {lr: 0.1, epochs: 2}\nother:\n  <<: *base\n  epochs: 3\n")
    assert read_yaml(tmp_path / "a.yaml")["other"] == {"lr": 0.1, "epochs": 3}


def test_values_are_those_of_json() -> None:
    text = "[1, 0x10, 1.5, .inf, yes, null, text, 2001-01-01, 2001-99-99, 2001-01-01T00:00:00Z]"
    dates = ["2001-01-01", "2001-99-99", "2001-01-01T00:00:00Z"]
    assert parse_yaml(text) == [1, 16, 1.5, float("inf"), True, None, "text", *dates]
    assert parse_yaml("") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (nested_aliases("[x, x]", "[*]", 12), "more than 100,000 values, aliases included"),
        (nested_aliases("{x: 1}", "{<<: [*]}", 12), "more than 100,000 values, aliases included"),
        ("a0: &a0 []\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 40)), "nested deeper than 32"),
        ("&a [*a]", "an alias contains itself"),
        ("&a {b: {c: *a}}", "an alias contains itself"),
        (1000 * "[", "nested deeper than 32 levels"),
        (1000 * "- ", "nested deeper than 32 levels"),
        (f"{(MAX_BYTES + 1) * 'x'}", "larger than 256 KiB"),
        (5000 * "9", "too many digits"),
        (f"0x{5000 * 'f'}", "an integer has more than 64 bits"),
        (f"{{{2**64}: 1}}", "an integer has more than 64 bits"),
        ("!!bool x", "does not fit its tag"),
        ("!!int x", "does not fit its tag"),
        ("!!timestamp 2001-99-99", "does not fit its tag"),
        ("!!timestamp 2001-01-01", "values of type date are not allowed"),
        ("!!set {a, b}", "values of type set are not allowed"),
        ("!!binary aGk=", "values of type bytes are not allowed"),
        ("!!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("a: b: c", "mapping values are not allowed here"),
        ("? [a]\n: b", "unhashable key"),
        ("a: 1\nb: {c: 2}\na: 3", "the key a is repeated, in line 3"),
        ('a: {\'b\\n\': 1, "b\\n": 1, "b\\n": 2}', "the key b is repeated, in line 1"),
    ],
)
def test_every_fault_is_a_value_error_of_one_line_at_once(text: str, message: str) -> None:
    started = time.monotonic()
    with pytest.raises(ValueError, match=message) as caught:
        parse_yaml(text)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 5


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"name: d\xe4p\n")
    with pytest.raises(ValueError, match="can't decode byte 0xe4"):
        read_yaml(tmp_path / "a.yaml")
