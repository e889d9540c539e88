"""Exported models, each made once per session."""

from collections.abc import Callable
from pathlib import Path

import pytest

from doap.bridges.onnx import export_model

Exported = Callable[..., Path]
"""Call as `exported("doap-tiny-128", "onnx", graph="image")`; returns the path of the file."""


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("exported")
    files: dict[tuple[object, ...], Path] = {}

    def export(model: str, suffix: str = "onnx", **options: str) -> Path:
        key = (model, suffix, *sorted(options.items()))
        if key not in files:
            files[key] = folder / f"{len(files)}.{suffix}"
            export_model(model, files[key], **options)  # type: ignore[arg-type]
        return files[key]

    return export
