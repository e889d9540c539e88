"""What the Learn tab shows of a training."""

import pytest

from doap.app.learn.events import (
    AnyEvent,
    Data,
    Done,
    Loss,
    Queries,
    Ranks,
    Stage,
    Validation,
    decode_event,
    encode_event,
)
from doap.app.learn.view import LearnView, render_curves, render_lists, render_summary


def ranks(name: str, epoch: int, rank: int) -> Ranks:
    return Ranks(0, name, epoch, (rank, rank), 50, 1 / rank, [rank == 1], ["0.5"], ["data:,x"])


EVENTS: list[AnyEvent] = [
    Stage("finding keypoints", 0.5),
    Data(8, 2, ["<script>alert(1)</script>.jpg: looks the same as a.jpg"], 1000, 2),
    Queries(["data:,q"]),
    ranks("RootSIFT", 0, 3),
    Validation("RootSIFT", 0, 0.6),
    ranks("own-128", 0, 40),
    Validation("own-128", 0, 0.4),
    Loss(0.5, 0.7),
    ranks("own-128", 1, 1),
    Validation("own-128", 1, 0.75),
]


def view_of(events: list[AnyEvent]) -> LearnView:
    view = LearnView()
    for event in events:
        view.add(event)
    return view


@pytest.mark.parametrize("event", [*EVENTS, Done(1, 0.75, False)])
def test_an_event_survives_the_pipe_as_one_line(event: AnyEvent) -> None:
    line = encode_event(event)
    assert "\n" not in line
    assert encode_event(decode_event(line)) == line


@pytest.mark.parametrize("line", ["", "text", "[]", "{}", '{"event": "Unknown"}', '{"event": "Loss"}'])
def test_other_lines_are_no_events(line: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  json's own error is one of them
        decode_event(line)


def test_the_summary_follows_the_training() -> None:
    assert "Preparing: finding keypoints" in render_summary(view_of(EVENTS[:1]))
    summary = render_summary(view_of(EVENTS))
    assert "epoch 1 of 2, loss 0.700" in summary
    assert 'aria-valuenow="25"' in summary
    assert all(value in summary for value in ("0.400", "0.750", "0.600"))
    done = render_summary(view_of([*EVENTS, Done(1, 0.75, True)]))
    assert "of epoch 1" in done
    assert "time limit" in done


def test_names_of_photos_are_escaped() -> None:
    summary = render_summary(view_of(EVENTS))
    assert "<script>" not in summary
    assert "&lt;script&gt;" in summary


def test_the_lists_are_in_the_order_of_epochs_with_the_baseline_last() -> None:
    html = render_lists(view_of(EVENTS))
    positions = [html.index(text) for text in ("untrained", "epoch 1", ">RootSIFT")]
    assert positions == sorted(positions)
    assert "correct at rank 40 of 50" in html
    assert html.count("correct at rank") == 3


def test_the_curves_start_with_the_first_loss() -> None:
    assert render_curves(view_of(EVENTS[:7])) == ""
    html = render_curves(view_of(EVENTS))
    assert "25.0,30.0" in html  # the loss 0.7 after half of the first of two epochs
    assert "0.0,60.0 50.0,25.0" in html  # AP 0.4, then 0.75 after the first
    assert "0.0,40.0 100.0,40.0" in html  # the baseline


def test_of_many_epochs_the_first_and_the_last_lists_are_shown() -> None:
    view = view_of([Queries(["data:,q"]), *(ranks("own-128", epoch, 2) for epoch in range(40))])
    shown = [entry.epoch for entry in view.lists()]
    assert len(shown) == 12
    assert (shown[0], shown[-1]) == (0, 39)


def test_a_query_that_does_not_exist_shows_nothing() -> None:
    view = view_of(EVENTS)
    view.query = 7
    assert render_lists(view) == ""
