"""The queries whose ranked lists are shown after every epoch."""

from pathlib import Path

import numpy as np
import pytest

from doap.app.learn.query import SHOWN, choose_queries
from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.build.cutting import cut_patches
from doap.datasets.sets.patch_set import PatchSet
from doap.demo import photos
from doap.images.frames import detect_dog
from doap.networks.descriptor import Descriptor
from doap.networks.registry import load
from doap.networks.small.tiny import Tiny


@pytest.fixture(scope="module")
def patches(tmp_path_factory: pytest.TempPathFactory) -> PatchSet:
    frames = frame_set_from_photos(photos.read_photos(photos.TEST[:2]), lambda image: detect_dog(image, 60), 15.0)
    path: Path = tmp_path_factory.mktemp("set") / "patches"
    cut_patches(frames, path)
    return PatchSet.open(path)


def test_each_list_has_one_correct_patch_and_none_that_overlaps_with_the_query(patches: PatchSet) -> None:
    untrained = Descriptor(Tiny(32, 8).eval(), "real", 15.0, "untrained")
    queries = choose_queries(patches, untrained)
    groups = np.unique(patches.groups)
    assert queries.patches.shape == (len(groups), 32, 32)
    for number, ranked in enumerate(queries.rank(load("doap-tiny-128"))):
        own = int(groups[queries.correct[number]])
        overlapping = {int(b) for pair in patches.overlaps.tolist() for a, b in (pair, pair[::-1]) if a == own}
        assert set(groups[ranked.items].tolist()) == set(groups.tolist()) - overlapping
        assert ranked.correct is not None
        assert groups[ranked.items[ranked.correct]].tolist() == [own]


def test_the_queries_are_those_that_the_untrained_model_misses(patches: PatchSet) -> None:
    untrained = Descriptor(Tiny(32, 8).eval(), "real", 15.0, "untrained")
    queries = choose_queries(patches, untrained)
    ranks = [ranked.first_correct for ranked in queries.rank(untrained)]
    assert all(rank is not None and rank[1] > SHOWN for rank in ranks)
    assert ranks == sorted(ranks, key=lambda rank: rank or (0, 0))


def test_a_trained_binary_model_ranks_most_queries_first(patches: PatchSet) -> None:
    untrained = Descriptor(Tiny(32, 8).eval(), "real", 15.0, "untrained")
    ranked = choose_queries(patches, untrained).rank(load("doap-tiny-256b"))
    precisions = [entry.average_precision or 0 for entry in ranked]
    assert np.mean(precisions) > 0.3
    assert all(entry.bits == 256 for entry in ranked)
