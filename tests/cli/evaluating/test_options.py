"""Options shared by the benchmark commands."""

import dataclasses
import inspect
import json
import zlib
from pathlib import Path

import pytest

from doap.cli.evaluating.oxford import oxford
from doap.cli.evaluating.pairs import pairs
from doap.cli.evaluating.warped import warped
from doap.cli.options.pairs import parse_extent
from doap.evaluation.harness.cache import CHECKSUM_BYTES
from doap.evaluation.image_pairs.own_pairs import ImagePairs
from doap.evaluation.image_pairs.oxford import Oxford
from doap.evaluation.image_pairs.warped import Warped
from support.command_line import Doap
from support.sets.small_pairs import write_sequence
from support.small_models import with_extents


@pytest.mark.parametrize(
    ("subcommand", "options", "expected"),
    [
        ("pairs", ("--detector", "dog"), 5.0),
        ("pairs", ("--detector", "harris"), 3.0),
        ("pairs", ("--detector", "hessian"), 5.0),
        ("pairs", ("--detector", "dog", "--extent", "4"), 4.0),
        ("oxford", ("--detector", "harris", "--extent", "own"), 3.0),
        ("warped", ("--copies", 1), 5.0),
    ],
)
def test_each_model_is_evaluated_at_its_own_extent_for_the_detector(
    doap: Doap,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    subcommand: str,
    options: tuple[object, ...],
    expected: float,
) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    write_sequence(tmp_path / "data" / "a", 0)
    model = with_extents(tmp_path / "mine.safetensors", dog=5.0, harris=3.0)
    words = (model, "--data", tmp_path / "data", "--keypoints", 40, "--json", "o.json", *options)
    assert doap("eval", subcommand, *words)[0] == 0
    (about,) = json.loads((tmp_path / "o.json").read_text())["methods"]
    assert about["extent"] == expected


@pytest.mark.parametrize("command", ["phototour", "hpatches", "romepatches", "oxford", "pairs", "warped"])
def test_removed_options_say_what_to_use(doap: Doap, command: str) -> None:
    for option, message in (
        (("--models", "doap-128", "sift"), f"give the models as arguments, doap eval {command} doap-128 sift --data …"),
        (("--models=sift",), "give the models as arguments"),
        (("--fresh",), "use --no-cache"),
    ):
        status, _, error = doap("eval", command, *option, "--data", "somewhere")
        assert (status, error.count("\n")) == (1, 1)
        assert f"{option[0].partition('=')[0]} was removed: {message}" in error


def test_without_cache_descriptors_are_computed_again(
    doap: Doap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    write_sequence(tmp_path / "data" / "a", 0)
    words = ("eval", "oxford", "sift", "--data", tmp_path / "data", "--keypoints", 20, "--json", "o.json")
    assert doap(*words)[0] == 0
    scores = json.loads((tmp_path / "o.json").read_text())["scores"]
    cached = list((tmp_path / "cache" / "descriptors").glob("*.npy"))
    for file in cached:
        zeros = file.read_bytes()[:128] + bytes(file.stat().st_size - 128 - CHECKSUM_BYTES)
        file.write_bytes(zeros + zlib.crc32(zeros).to_bytes(CHECKSUM_BYTES, "little"))
    assert doap(*words)[0] == 0
    assert json.loads((tmp_path / "o.json").read_text())["scores"] != scores  # the cache was used
    assert doap(*words, "--no-cache")[0] == 0
    assert json.loads((tmp_path / "o.json").read_text())["scores"] == scores


def test_defaults_are_those_of_the_benchmarks() -> None:
    """Commands repeat the defaults of the benchmarks, which they import only when they run."""
    for command, benchmark in ((oxford, Oxford), (pairs, ImagePairs), (warped, Warped)):
        parameters = inspect.signature(command).parameters
        for field in dataclasses.fields(benchmark):
            if field.default is not dataclasses.MISSING:
                default = parameters[field.name].default
                assert (parse_extent(default) if field.name == "extent" else default) == field.default


def test_json_and_csv_do_not_replace_each_other(doap: Doap, tmp_path: Path) -> None:
    words = ("eval", "oxford", "sift", "--data", "absent", "--json", "o.json", "--csv", tmp_path / "o.json")
    status, _, error = doap(*words)
    assert (status, error.count("\n")) == (1, 1)
    assert "o.json: is the file of --json, which would be replaced" in error
