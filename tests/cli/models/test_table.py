from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import doap as package
from doap.evaluation.harness.cards import card_facts
from doap.networks.baselines.tfeat import TFeat
from doap.networks.card import Origin, read_card, write_card
from support.command_line import Doap
from support.small_models import with_extents


def test_the_listing_has_every_model_that_ships(doap: Doap) -> None:
    status, shown, _ = doap("models")
    assert status == 0
    listed = [line.split()[1] for line in shown.splitlines() if line.startswith("│ doap-")]
    assert listed == package.list_models()


def test_each_figure_of_a_model_is_on_a_line_of_its_own(doap: Doap) -> None:
    _, shown, _ = doap("models")
    assert "\\x0a" not in shown
    first, second = [line for line in shown.splitlines() if "doap demo, " in line][:2]
    assert ("mAP" in first, "mAP" in second) == (True, False)


def test_a_card_is_printed_whole(doap: Doap, tmp_path: Path) -> None:
    for spec in ("doap-demo-128", with_extents(tmp_path / "mine.safetensors", dog=8.5)):
        status, shown, _ = doap("models", spec)
        assert status == 0
        lines = shown.splitlines()
        assert lines[0] == "doap-demo-128"
        facts = card_facts(spec)
        assert [line[14:] for line in lines[1:]] == [line for each in facts.values() for line in each]
        assert [line[2:14].strip() for line in lines[1:] if line[2] != " "] == list(facts)


def test_long_headings_are_apart_from_their_values(doap: Doap, tmp_path: Path) -> None:
    spec = Path(with_extents(tmp_path / "mine.safetensors"))
    card = read_card(spec)
    notes = {"initial_weights": "start", "validation_fingerprint": "0a1b"}
    write_card(spec, card.model_copy(update={"origin": Origin(notes=notes)}))
    status, shown, _ = doap("models", str(spec))
    assert status == 0
    column = 2 + len("validation_fingerprint") + 1
    facts = card_facts(str(spec))
    rows = [(heading, line) for heading, lines in facts.items() for line in lines]
    assert [(row[:column].strip(), row[column:]) for row in shown.splitlines()[1:]] == rows


@pytest.mark.parametrize("baseline", ["sift", "tfeat.safetensors"])
def test_a_baseline_without_a_card_says_so_in_one_line(doap: Doap, tmp_path: Path, baseline: str) -> None:
    save_file(TFeat().state_dict(), tmp_path / "tfeat.safetensors")
    status, shown, _ = doap("models", baseline)
    assert (status, shown.count("\n")) == (0, 1)
    assert shown.startswith(f"{baseline}: a baseline without a card (real, 512 bytes, extent")


def test_what_is_no_model_is_refused(doap: Doap, tmp_path: Path) -> None:
    save_file({"layer": torch.zeros(3)}, tmp_path / "foreign.safetensors")
    for spec, message in (("doap-129", "no model of this name"), ("foreign.safetensors", "its card foreign.json")):
        status, _, errors = doap("models", spec)
        assert (status, errors.count("\n")) == (1, 1)
        assert message in errors
