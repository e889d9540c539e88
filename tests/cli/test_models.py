from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import doap as package
from doap.evaluation.harness.cards import card_facts
from doap.networks.baselines.tfeat import TFeat
from support.small_models import with_extents


def test_the_listing_has_every_model_that_ships(doap) -> None:  # type: ignore[no-untyped-def]
    status, shown, _ = doap("models")
    assert status == 0
    listed = [line.split()[1] for line in shown.splitlines() if line.startswith("│ doap-")]
    assert listed == package.list_models()


def test_a_card_is_printed_whole(doap, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for given in ("doap-demo-128", with_extents(tmp_path / "mine.safetensors", dog=8.5)):
        status, shown, _ = doap("models", given)
        assert status == 0
        lines = shown.splitlines()
        assert lines[0] == "doap-demo-128"
        facts = card_facts(given)
        assert [line[14:] for line in lines[1:]] == [line for each in facts.values() for line in each]
        assert [line[2:14].strip() for line in lines[1:] if line[2] != " "] == list(facts)


@pytest.mark.parametrize("peer", ["sift", "tfeat.safetensors"])
def test_a_peer_without_a_card_says_so_in_one_line(doap, tmp_path: Path, peer: str) -> None:  # type: ignore[no-untyped-def]
    save_file(TFeat().state_dict(), tmp_path / "tfeat.safetensors")
    status, shown, _ = doap("models", peer)
    assert (status, shown.count("\n")) == (0, 1)
    assert shown.startswith(f"{peer}: a peer, which has no card (real, 512 bytes, extent")


def test_what_is_no_model_is_refused(doap, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    save_file({"layer": torch.zeros(3)}, tmp_path / "foreign.safetensors")
    for given, message in (("doap-129", "no model of this name"), ("foreign.safetensors", "its card foreign.json")):
        status, _, errors = doap("models", given)
        assert (status, errors.count("\n")) == (1, 1)
        assert message in errors
