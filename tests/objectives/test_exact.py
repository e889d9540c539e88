import numpy as np
import pytest
import torch

from doap.evaluation.metrics.average_precision import average_precision
from doap.objectives.exact import exact_average_precisions


@pytest.mark.parametrize("levels", [3, 20, 10**6], ids=["many ties", "ties", "no ties"])
def test_every_row_is_the_metric_of_one_list(levels: int) -> None:
    random = np.random.default_rng(levels)
    distances = random.integers(levels, size=(40, 57)).astype(np.float32)
    relevant = random.random((40, 57)) < 0.2
    listed = random.random((40, 57)) < 0.8
    relevant[:, 0] = listed[:, 0] = True
    precisions = exact_average_precisions(*map(torch.from_numpy, (distances, relevant, listed)))
    expected = [average_precision(d[s], r[s]) for d, r, s in zip(distances, relevant, listed, strict=True)]
    np.testing.assert_allclose(precisions, expected, rtol=1e-12)


def test_a_query_without_a_correct_item_is_nan() -> None:
    listed = torch.ones(2, 3, dtype=torch.bool)
    precisions = exact_average_precisions(torch.rand(2, 3), torch.tensor([[False] * 3, [True, False, False]]), listed)
    assert precisions.isnan().tolist() == [True, False]
