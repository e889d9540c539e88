"""Model cards: keys on disk, and cards of earlier versions."""

import json
from pathlib import Path

import pytest

from doap import DoapError
from doap.networks.architecture import Architecture
from doap.networks.card import Card, DataSource, Origin, read_card, write_card

CARD = Card(
    name="small",
    kind="binary",
    architecture=Architecture(dimensions=16, width=2),
    input_size=32,
    extent=12.0,
    extents={"dog": 8.5},
    sha256="0" * 64,
    origin=Origin(
        licence="CC0",
        data="train",
        sources=[DataSource(source="github:a/b", licence="CC0", photos=3)],
        recipe={"epochs": 3},
        figures={"AP %": 81.5},
        notes={"command": "doap train"},
    ),
)


def test_a_card_round_trips_and_its_keys_do_not_change(tmp_path: Path) -> None:
    write_card(tmp_path / "small.safetensors", CARD)
    assert read_card(tmp_path / "small.safetensors") == CARD
    content = json.loads((tmp_path / "small.json").read_text())
    assert list(content) == [
        "name",
        "kind",
        "architecture",
        "input_size",
        "extent",
        "extents",
        "prefixes",
        "activation_ranges",
        "sha256",
        "origin",
    ]
    assert list(content["architecture"]) == [
        "network", "dimensions", "width", "depth", "surround", "transformer", "transformer_bounded",
        "transformer_padding",
    ]  # fmt: skip
    assert list(content["origin"]) == ["licence", "data", "training_sets", "sources", "recipe", "figures", "notes"]
    assert list(content["origin"]["sources"][0]) == ["source", "licence", "photos"]


def test_a_card_with_a_recipe_of_version_0_1_is_read(tmp_path: Path) -> None:
    recipe = {"list_size": 1024, "views": 4, "held_out": 0.1}
    content = CARD.model_dump() | {"origin": {"recipe": recipe, "figures": {"doap demo, right neighbours %": 87.0}}}
    (tmp_path / "small.json").write_text(json.dumps(content))
    assert read_card(tmp_path / "small.safetensors").origin.recipe == recipe


def test_a_missing_card_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"^[^\n]*its card small\.json cannot be read[^\n]*copy it to the same folder$"):
        read_card(tmp_path / "small.safetensors")


def test_photos_without_a_licence_are_counted_beside_the_licence_of_the_weights() -> None:
    counts = {"CC0": 500, "no licence stated": 1000, "No licence file in repo (Kodak)": 200, "repo file (not read)": 4}
    sources = [DataSource(source="github:a/b", licence=licence, photos=n) for licence, n in counts.items()]
    note = "1,200 of the 1,704 training photos state no licence"
    assert Origin(licence="Apache-2.0", sources=sources).licence_with_photos == f"Apache-2.0; {note}"
    assert Origin(sources=sources).licence_with_photos == note
    assert Origin(licence="Apache-2.0", sources=sources[:1]).licence_with_photos == "Apache-2.0"
    assert Origin(licence="Apache-2.0").licence_with_photos == "Apache-2.0"
