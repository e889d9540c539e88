import pickle

import pytest

from doap.errors import MAX_LINE, DoapError, check_choice


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


@pytest.mark.parametrize(
    ("value", "shown"), [("odd", "odd"), ("", ""), (None, "None"), (3, "3"), (["a"], "list"), (b"a", "b'a'")]
)
def test_choices_that_do_not_exist_are_named_with_those_that_do(value: object, shown: str) -> None:
    check_choice("side", "left", ("left", "right"))
    with pytest.raises(DoapError) as caught:
        check_choice("side", value, {"left": 1, "right": 2})
    assert str(caught.value) == f"side {shown}: unknown; choose one of left, right"
    with pytest.raises(DoapError, match=f"side {shown}: unknown; choose one of left, right, or None$"):
        check_choice("side", value, ("left", "right"), "None")


def test_an_unknown_geometry_has_one_text() -> None:
    from doap.folders import MatchSettings
    from doap.geometry.robust import check_cameras

    with pytest.raises(DoapError) as first:
        check_cameras("affine", None)  # type: ignore[arg-type]
    with pytest.raises(DoapError) as second:
        MatchSettings(geometry="affine")  # type: ignore[arg-type]
    assert str(second.value) == f"{first.value}, or None"
