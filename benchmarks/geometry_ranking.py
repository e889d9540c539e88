"""AP of the true geometry in image sequences, a reference for descriptors.

    python benchmarks/geometry_ranking.py data/oxford
    python benchmarks/geometry_ranking.py data/oxford --frames learned
    python benchmarks/geometry_ranking.py pairs/val --sequences 'i_*'    # of doap data pairs

In place of its nearest neighbour, each keypoint of the first image proposes the keypoint of the second that overlaps
best under the homography, and these pairs are ranked by overlap, equal ones by rotation: the order in which the
protocol selects corresponding keypoints. AP stays below 100 % because the protocol selects them one to one. Of several
keypoints at nearly the same place, all propose the same partner, and all but one are wrong. A descriptor cannot know
which one was selected, either. It can rank the pairs in a better order, so this AP is no upper bound. Pairs without a
homography are left out.
"""

import argparse
from collections import defaultdict
from fnmatch import fnmatch
from pathlib import Path
from typing import get_args

import numpy as np

from doap.choices import FrameShape
from doap.datasets.sets.image_pairs import find_pairs
from doap.evaluation.image_pairs.correspondences import rank_overlapping_pairs
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import ImagePair
from doap.evaluation.metrics.average_precision import average_precision
from doap.images.detectors import DETECTORS


def geometry_average_precision(pair: ImagePair) -> float:
    """Return the AP of a pair if each frame proposes the frame that overlaps it best, ranked by overlap."""
    first, second = (view.frames[common] for view, common in zip((pair.first, pair.second), pair.common, strict=True))
    ranked = rank_overlapping_pairs(first, second, pair.ground_truth.matrix)
    frames, rank = np.unique(ranked[:, 0], return_index=True)  # frames without any overlap propose nothing
    correct = ranked[rank, 1] == pair.partners[frames]
    return average_precision(rank, correct, int((pair.partners >= 0).sum()))


def main() -> None:
    """Print AP of each sequence, and the means over sequences and over pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of image pairs, in a layout of doap eval pairs")
    parser.add_argument("--sequences", default="*", help="pattern of the names of the sequences to use")
    parser.add_argument("--detector", default="dog", choices=list(DETECTORS))
    parser.add_argument("--frames", default="detected", choices=get_args(FrameShape))
    parser.add_argument("--keypoints", type=int, default=1000, help="number of strongest keypoints per image")
    options = parser.parse_args()
    reader = PairReader(options.detector, options.keypoints, frames=options.frames)
    precisions = defaultdict(list)
    for files in find_pairs(options.data):
        if not files.is_planar or not fnmatch(files.sequence, options.sequences):
            continue
        pair = reader.open(files)
        precisions[pair.sequence].append(geometry_average_precision(pair))
        print(f"{pair.sequence} {pair.name}: {100 * precisions[pair.sequence][-1]:.1f}", flush=True)
    if not precisions:
        parser.error("no pair of these sequences has a homography")
    means = {sequence: 100 * float(np.mean(values)) for sequence, values in precisions.items()}
    print("AP %:", ", ".join(f"{sequence} {mean:.1f}" for sequence, mean in means.items()))
    over_pairs = 100 * np.mean([ap for values in precisions.values() for ap in values])
    print(f"mean over sequences: {np.mean(list(means.values())):.1f}, over pairs: {over_pairs:.1f}")


if __name__ == "__main__":
    main()
