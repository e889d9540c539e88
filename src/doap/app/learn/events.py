"""Events that the process of a training sends to the page: one JSON object per line."""

import json
from dataclasses import asdict, dataclass
from typing import Any

Event = dict[str, Any]

BASELINE_NAME = "RootSIFT"
"""Name of the baseline in events and on the page."""


@dataclass(frozen=True)
class Stage:
    """A step before the training, and its finished fraction."""

    text: str
    done: float


@dataclass(frozen=True)
class Data:
    """What is trained on.

    Attributes:
        train: Number of photos to train on.
        val: Number of photos to validate on.
        left_out: One line per photo that is not used.
        patches: Number of patches to train on.
        epochs: Number of epochs.
    """

    train: int
    val: int
    left_out: list[str]
    patches: int
    epochs: int


@dataclass(frozen=True)
class Loss:
    """The loss after a step; `epoch` is the time in epochs."""

    epoch: float
    loss: float


@dataclass(frozen=True)
class Validation:
    """The exact AP of a model on the validation photos.

    Attributes:
        name: The model under training, or that of a baseline.
        epoch: Finished epochs; 0 before the training and for a baseline.
        ap: In 0..1.
    """

    name: str
    epoch: int
    ap: float


@dataclass(frozen=True)
class Ranks:
    """The list of a query.

    Attributes:
        query: Number of the query, from 0.
        name: Of the model.
        epoch: Finished epochs; 0 before the training and for a baseline.
        rank: Best and worst rank of the correct patch, from 1.
        length: Number of patches in the list.
        ap: Tie-aware AP of the list.
        correct: Whether each of the first patches is correct.
        distances: Of the first patches, with their unit.
        patches: The first patches as data URIs.
    """

    query: int
    name: str
    epoch: int
    rank: tuple[int, int]
    length: int
    ap: float
    correct: list[bool]
    distances: list[str]
    patches: list[str]


@dataclass(frozen=True)
class Queries:
    """The query patches as data URIs."""

    patches: list[str]


@dataclass(frozen=True)
class Done:
    """The training is finished.

    Attributes:
        epoch: Epoch of the best validation AP, from 1; its weights are kept.
        ap: This AP.
        is_cut: Whether the time limit ended the training.
    """

    epoch: int
    ap: float
    is_cut: bool


@dataclass(frozen=True)
class Failure:
    """The training failed; one line says why."""

    line: str


AnyEvent = Stage | Data | Loss | Validation | Ranks | Queries | Done | Failure
KINDS: dict[str, type[AnyEvent]] = {
    kind.__name__: kind for kind in (Stage, Data, Loss, Validation, Ranks, Queries, Done, Failure)
}


def encode_event(event: AnyEvent) -> str:
    """Return an event as one line.

    Example:
        >>> encode_event(Loss(0.5, 0.25))
        '{"event": "Loss", "epoch": 0.5, "loss": 0.25}'
    """
    return json.dumps({"event": type(event).__name__, **asdict(event)})


def decode_event(line: str) -> AnyEvent:
    """Return the event of a line.

    Raises:
        ValueError: If the line is not an event.

    Example:
        >>> decode_event('{"event": "Stage", "text": "starting", "done": 0}')
        Stage(text='starting', done=0)
    """
    try:
        values: Event = json.loads(line)
        event = KINDS[values.pop("event")](**values)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not an event: {line[:80]}") from error
    return event
