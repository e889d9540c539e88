"""What fits into the time of a training."""

from doap.app.learn.plan import MAX_EPOCHS, MIN_EPOCHS, Plan


def test_a_slow_machine_gets_fewer_keypoints_and_a_fast_one_no_more_than_the_limit() -> None:
    slow, fast = Plan(20, 128), Plan(100_000, 128)
    assert slow.keypoints(8) == 64
    assert fast.keypoints(8) == 1000
    assert fast.keypoints(2) == 1200


def test_the_epochs_fill_the_time_within_bounds() -> None:
    assert Plan(20, 128).epochs(4000) == MIN_EPOCHS
    assert Plan(100_000, 128).epochs(4000) == MAX_EPOCHS
    # 16 steps and a validation as long as 6 steps: 8 epochs in 176 steps
    assert Plan(176, 128).epochs(16 * 128) == 8
