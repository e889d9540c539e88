import numpy as np
import torch

from doap.datasets.batches.sequence_tables import SequenceTables
from doap.datasets.sets.groups import GroupedSet


def test_patches_of_one_sequence_ignore_each_other() -> None:
    random = np.random.default_rng(0)
    sequence_of_group = random.integers(0, 9, 50) * 7  # neither from 0 nor without gaps
    groups = np.arange(200) // 4
    data = GroupedSet(groups, sequence_of_group[groups])
    tables = SequenceTables(data)
    for count in (1, 5, 64):
        indices = random.choice(200, count, replace=False)
        ignore = tables.ignore_table(indices)
        ignore.check(count)
        ignored = ignore.table[ignore.labels][:, ignore.labels]
        expected = data.sequences[indices][:, None] == data.sequences[indices]
        np.testing.assert_array_equal(ignored.numpy(), expected)
        assert ignore.labels.device == torch.device("cpu")
