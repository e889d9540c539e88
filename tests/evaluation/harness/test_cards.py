from pathlib import Path

import pytest

from doap import load
from doap.evaluation.harness.cards import card_facts, models_table
from doap.networks.architecture import Architecture, build_network
from doap.networks.card import DataSource, Origin
from doap.networks.descriptor import Descriptor
from doap.networks.registry import save

ORIGIN = Origin(
    licence="CC0",
    data="some photos",
    sources=[DataSource(source="github:a/b", licence="no licence stated", photos=1200)],
    recipe={"epochs": 3, "objective": "ap", "bins": None},
    figures={"first %": 71.25, "second %": 3.0, "third %": 9.0},
    notes={"command": "doap train x", "teacher": None, "versions": {"torch": "2.11"}, "tried": ["a", "b"]},
)


@pytest.fixture
def small(tmp_path: Path) -> str:
    architecture = Architecture(dimensions=16, width=2, transformer=True)
    model = Descriptor(build_network(architecture), "binary", 12.0, "small-16b", {"dog": 8.5, "harris-affine": 6.0})
    save(model, tmp_path / "small.safetensors", architecture, ORIGIN)
    return str(tmp_path / "small.safetensors")


def test_the_table_says_what_a_model_is(small: str) -> None:
    table = models_table([small, "doap-demo-128"])
    first, second = (dict(zip(table.columns, row.cells, strict=True)) for row in table.rows)
    count = sum(
        value.numel() for name, value in load(small, fast=False).state_dict().items() if not _is_statistic(name)
    )
    size = Path(small).stat().st_size
    assert first == {
        "model": "small-16b", "kind": "binary", "bytes": "2", "parameters": f"{count:,}",
        "file": f"{size / 1000:.0f} kB", "extent": "dog 8.5, harris-affine 6, others 8.5",
        "figures": "first %: 71.25\nsecond %: 3",
    }  # fmt: skip
    assert (second["model"], second["kind"], second["bytes"]) == ("doap-demo-128", "real", "512")


def _is_statistic(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in ("running_mean", "running_var", "num_batches_tracked")


def test_all_facts_of_a_card_are_listed(small: str) -> None:
    facts = card_facts(small)
    assert facts["kind"] == ["binary, 16 bits, 2 bytes per descriptor"]
    assert "l2net of width 2, with a Spatial Transformer" in facts["network"][0]
    assert facts["photos"] == ["1,200 of github:a/b: no licence stated"]
    assert facts["recipe"] == ["epochs=3 objective=ap bins=null"]
    assert facts["figures"] == ["first %: 71.25", "second %: 3", "third %: 9"]
    assert facts["command"] == ["doap train x"]
    assert facts["versions"] == ["torch=2.11"]
    assert facts["tried"] == ["a, b"]
    assert "teacher" not in facts
    assert "photos" not in card_facts("doap-demo-128")
