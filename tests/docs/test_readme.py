"""Figures of README.md that no other test compares with their source."""

import re
from pathlib import Path

import doap

README = Path(__file__).parents[2] / "README.md"


def test_parameters_of_models_are_those_of_their_networks() -> None:
    rows = re.findall(r"^\| (`doap-.+`) \| .+ \| (.+ M) \|$", README.read_text(), re.MULTILINE)
    stated: dict[str, str] = {}
    for names, counts in rows:
        stated |= dict(zip(re.findall(r"`(.+?)`", names), counts.split(", "), strict=True))
    counted = {
        name: f"{sum(p.numel() for p in doap.load(name, fast=False).parameters()) / 1e6:.1f} M"
        for name in doap.list_models()
        if "demo" not in name
    }
    assert stated == counted
