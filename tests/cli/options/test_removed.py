import pytest

from support.command_line import Doap


@pytest.mark.parametrize(
    ("command", "option", "replacement"),
    [
        ("train", "--validate", "--val"),
        ("study", "--validate=sets/val", "--val"),
        ("data split", "--share=0.125", "--val-fraction"),
        ("data build", "--fixed", "--static"),
        ("data build", "--no-fixed", "--no-static"),
        ("eval pairs", "--pictures", "--drawings"),
    ],
)
def test_an_option_of_version_0_1_is_one_line_that_names_the_new_one(
    doap: Doap, command: str, option: str, replacement: str
) -> None:
    status, _, error = doap(*command.split(), option, "somewhere")
    assert (status, error.count("\n")) == (1, 1)
    assert f"{option.partition('=')[0]} was removed: use {replacement}\n" in error
