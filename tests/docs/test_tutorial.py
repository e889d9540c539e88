"""The tutorial as tools/tutorial.py writes it."""

import re
import shlex

import tutorial
from support.pages import read_page

PAGE = read_page("docs/tutorial.md")


def test_the_table_of_times_has_every_command() -> None:
    actual = tutorial.TIMES.search(PAGE)
    assert actual is not None
    timed = re.findall(r"^\| `(doap .*?)` \| \d+ s \| \d+ s \|$", actual.group(), re.MULTILINE)
    assert timed == [tutorial.DETAILS.sub("", command) for command in tutorial.list_commands(PAGE)]


def test_every_block_of_commands_has_its_output() -> None:
    blocks = list(tutorial.BLOCK.finditer(PAGE))
    assert len(blocks) == 5
    for block in blocks:
        assert block["output"]
        assert not tutorial.PROGRESS.search(block["output"])


def test_no_photo_is_trained_on_and_tested() -> None:
    assert not set(tutorial.TRAIN) & set(tutorial.HELD_OUT)
    assert all(path.exists() for path in (*tutorial.TRAIN, *tutorial.HELD_OUT))
    assert len(tutorial.TRAIN) == 15


def test_the_models_of_the_page_are_trained_before_they_are_used() -> None:
    trained: set[str] = set()
    for command in tutorial.list_commands(PAGE):
        words = shlex.split(command)
        if words[1] == "train":
            trained.add(words[words.index("-o") + 1])
        for model in (word for word in words if word.endswith(".safetensors")):
            assert model.rpartition("/")[0] in trained, command
