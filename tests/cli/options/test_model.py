from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

from doap import DoapError
from doap.choices import Precision
from doap.cli.options import model as model_options
from doap.cli.options.model import PrecisionOption, load_model
from doap.networks.inference import InferenceNetwork


@pytest.mark.parametrize(("precision", "is_fast"), [("fast", True), ("exact", False)])
def test_the_precision_selects_the_form_of_the_model(precision: Precision, is_fast: bool) -> None:
    model = load_model("doap-demo-128", "cpu", precision)
    assert isinstance(model.network, InferenceNetwork) is is_fast


def test_unknown_devices_models_and_precisions_are_refused() -> None:
    with pytest.raises(DoapError, match="device teapot"):
        load_model("doap-demo-128", "teapot", "fast")
    with pytest.raises(DoapError, match="no model of this name"):
        load_model("doap-129", "cpu", "exact")
    app = typer.Typer()

    @app.command()
    def command(precision: PrecisionOption = "fast") -> None:
        typer.echo(precision)

    assert CliRunner().invoke(app, ["--precision", "exact"]).output == "exact\n"
    assert CliRunner().invoke(app, ["--precision", "double"]).exit_code == 2


def test_int8_is_computed_on_the_cpu_also_where_a_gpu_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_options, "choose_device", lambda name: name or "cuda")
    devices = {precision: model_options.choose_model_device(None, precision) for precision in get_args(Precision)}
    assert devices == {"fast": "cuda", "exact": "cuda", "int8": "cpu"}
    assert model_options.choose_model_device("cuda", "int8") == "cuda"  # refused where the model is loaded
    assert model_options.load_model("doap-tiny-256b", None, "int8").kind == "binary"
