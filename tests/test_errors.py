import pickle

from doap.errors import MAX_LINE, DoapError


def test_the_middle_of_very_long_content_is_left_out() -> None:
    error = DoapError(f"file.csv: {'9' * 50_000} is not a number; remove it")
    assert len(str(error)) < MAX_LINE
    assert str(error).startswith("file.csv: 999")
    assert str(error).endswith("999 is not a number; remove it")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_line_breaks_are_escaped() -> None:
    assert str(DoapError("a\nb.csv: no such file")) == r"a\x0ab.csv: no such file"


def test_other_lines_are_unchanged() -> None:
    assert str(DoapError("x" * MAX_LINE)) == "x" * MAX_LINE
