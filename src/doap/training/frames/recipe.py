"""Recipes of networks that correct frames."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from doap.errors import DoapError
from doap.networks import DEFAULT_MODEL
from doap.networks.frames import FrameSettings
from doap.parsing.yaml_files import parse_yaml

FrameObjective = Literal["ap", "affnet"]


class FrameRecipe(BaseModel):
    """A network that corrects frames, and how to train it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    network: FrameSettings = FrameSettings()
    initial_weights: str | None = Field(
        default=None, description="path of a network of the same width to start from; by default the identity"
    )
    descriptor: str = Field(default=DEFAULT_MODEL, description="model that describes the corrected frames")
    objective: FrameObjective = Field(default="ap", description="ap, or affnet: that of the baseline")
    batch_size: int = Field(default=1024, ge=4, le=1 << 16, description="frames per batch, two views of each point")
    points_per_photo: int = Field(default=32, ge=1, le=1 << 16, description="points from each photo of a batch")
    steps: int = Field(default=3000, ge=1, le=10**7)
    max_minutes: float | None = Field(
        default=None,
        gt=0,
        description="minutes after which training ends, schedule included",
    )
    warm_up: float = Field(
        default=0.4, ge=0, le=1, description="fraction of the steps at the start that train covariance alone"
    )
    covariance_weight: float = Field(
        default=0.3, ge=0, le=1e6, description="weight of the covariance after the warm-up"
    )
    joint: float = Field(
        default=0.0, ge=0, le=1, description="fraction of the steps at the end that train the descriptor, too"
    )
    joint_lr_divisor: float = Field(
        default=20.0, ge=1, le=1e9, description="divides the learning rate of the descriptor"
    )
    rotation_jitter: float = Field(default=10.0, ge=0, le=180, description="standard deviation in degrees")
    scale_jitter: float = Field(default=0.1, ge=0, le=2, description="standard deviation in octaves")
    lr: float = Field(
        default=3e-3, gt=0, le=10, description="learning rate of Adam at the start; it falls linearly to 0"
    )
    prediction_lr_divisor: float = Field(
        default=30.0, ge=1, le=1e9, description="divides the learning rate of the prediction layer"
    )
    weight_decay: float = Field(default=1e-4, ge=0, le=10)
    seed: int = Field(default=0, ge=0, lt=1 << 63)


def read_settings(settings: list[str]) -> FrameRecipe:
    """Return the recipe with `key=value` texts instead of defaults; the last value of a key counts.

    Settings of the network are written as `network.key=value` or `network={key: value, …}`.

    Raises:
        DoapError: If a key or a value is invalid; one line that names it.
    """
    values: dict[str, Any] = {}
    network: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals:
            raise DoapError(f"--set {setting}: write it as key=value")
        try:
            value = parse_yaml(text)
        except ValueError as error:
            raise DoapError(f"--set {setting}: not valid YAML ({error})") from error
        if key == "network":
            if not isinstance(value, dict):
                raise DoapError("--set network: not a mapping; write it as network={key: value} or network.key=value")
            network.update(value)
        elif key.startswith("network."):
            network[key.removeprefix("network.")] = value
        else:
            values[key] = value
    try:
        return FrameRecipe.model_validate({**values, "network": network})
    except ValidationError as error:
        first = error.errors()[0]
        raise DoapError(f"--set {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
