"""Methods that were trained on what a benchmark tests."""

from pathlib import Path

import pytest

from doap import load
from doap.cli.evaluating.options import Outputs, run_benchmark
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.cards import card_facts
from doap.evaluation.harness.methods import Method, open_methods
from doap.evaluation.harness.result import read_result
from doap.evaluation.harness.training_sets import MARK, SEEN, metadata_of, training_sets_of
from doap.evaluation.hpatches.benchmark import HPatches
from doap.evaluation.romepatches.benchmark import RomePatches
from doap.networks.card import Origin, TrainingSet
from doap.networks.registry import find_card, save
from support.figures import record_figures
from support.sets.official_formats import write_half
from support.sets.small_official_sets import make_hpatches

TESTED = ("i_one", "v_two", "v_three")


def trained(folder: Path, name: str, *sets: TrainingSet) -> str:
    """Save a model whose card names its training sets."""
    model, card = load("doap-demo-256b", fast=False), find_card("doap-demo-256b")
    assert card is not None
    model.name = name
    save(model, folder / f"{name}.safetensors", card.architecture, Origin(training_sets=list(sets)))
    return str(folder / f"{name}.safetensors")


@pytest.fixture
def methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Method]:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    some = TrainingSet(path="x", layout="hpatches", split="a", sequences=["v_two", "v_else"])
    rest = TrainingSet(path="y", layout="hpatches", sequences=["v_two", "v_three"])
    rome = TrainingSet(path="z", layout="romepatches", sequences=["train", "test"])
    half = TrainingSet(path="z", layout="romepatches", split="train", sequences=["train"])
    scene = TrainingSet(path="v", layout="phototour", sequences=["i_one"])
    specs = [
        trained(tmp_path, "seen", some, rest),
        trained(tmp_path, "clean", TrainingSet(path="x", layout="hpatches", sequences=["v_else"]), half, scene),
        trained(tmp_path, "rome", rome),
        "doap-demo-256b",
        "beblid-256",
    ]
    return open_methods(specs, cache=DescriptorCache(tmp_path / "descriptors"))


def test_the_sequences_in_common_are_counted(methods: list[Method]) -> None:
    assert [len(training_sets_of(method)) for method in methods] == [2, 3, 1, 0, 0]
    assert [metadata_of(method, "hpatches", TESTED).get(SEEN) for method in methods] == [2, None, None, None, None]
    assert [metadata_of(method, "romepatches", ["test"]).get(SEEN) for method in methods] == [None] * 2 + [1] + [
        None
    ] * 2


def test_the_facts_of_a_card_tell_what_it_was_trained_on(methods: list[Method]) -> None:
    assert card_facts(methods[1].spec)["trained on"] == [
        "hpatches, 1 sequence", "romepatches, split train, 1 sequence", "phototour, 1 sequence",
    ]  # fmt: skip
    assert "trained on" not in card_facts("doap-demo-256b")


def test_hpatches_marks_what_saw_test_sequences(
    methods: list[Method], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = record_figures(monkeypatch)
    folder = make_hpatches(tmp_path / "hpatches", TESTED, patches=3)
    benchmark = HPatches(folder, tasks=["matching"])
    outputs = Outputs(tmp_path / "result.json", None, tmp_path / "result.png")
    run_benchmark(benchmark, methods[:2], outputs)
    result = read_result(tmp_path / "result.json")
    assert [method.get(SEEN) for method in result.methods] == [2, None]
    (table,) = benchmark.tables(result)
    assert {row.cells[0] for row in table.rows} == {f"seen{MARK}", "clean"}
    assert table.note == f"{MARK} trained on 2 of the 3 test sequences"
    shown = " ".join("".join(capsys.readouterr()).split())
    assert shown.count("trained on test sequences, so that these figures are no test: seen") == 1
    (figure,) = figures
    assert {label.get_text() for label in figure.axes[0].get_yticklabels()} == {f"seen{MARK}", "clean"}
    assert figure.get_supxlabel() == f"{MARK} trained on 2 of the 3 test sequences"


def test_romepatches_marks_what_saw_the_test_half(methods: list[Method], tmp_path: Path) -> None:
    for seed, half in enumerate(("train", "test")):
        write_half(tmp_path / "halves", half, seed=seed)
    result = RomePatches(tmp_path / "halves").evaluate(methods[1:3])
    (table,) = RomePatches.tables(result)
    assert [row.cells[0] for row in table.rows[:2]] == ["clean", f"rome{MARK}"]
    assert table.note.endswith(f"{MARK} trained on the test half")
    (plain,) = RomePatches.tables(RomePatches(tmp_path / "halves").evaluate(methods[1:2]))
    assert MARK not in plain.note
