"""Sections of the report, in the order of the paper."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from doap.evaluation.harness.published import published_table
from doap.evaluation.harness.table import Table
from doap.evaluation.phototour.tables import phototour_table
from doap.evaluation.romepatches.tables import romepatches_table


@dataclass(frozen=True)
class Section:
    """A table or figure of the paper.

    Attributes:
        key: Name of the benchmark, of the recipe key of a sweep, or of a picture.
        title: Heading.
        reference: Table or figure in the paper; empty if it is not in the paper.
        description: What is measured.
        command: Commands that produce the result.
        statement: Statement of the paper, where it prints no table.
        published: Name of the quoted figures in published.yaml.
    """

    key: str
    title: str
    reference: str
    description: str
    command: str
    statement: str = ""
    published: str = ""


SECTIONS = (
    Section(
        "phototour",
        "UBC Phototour: patch verification",
        "Table 1",
        "Trained on one scene, tested on another: the rate of non-matching pairs that are accepted at the threshold "
        "which accepts 95 % of the matching pairs.",
        "doap data download phototour-liberty phototour-notredame phototour-yosemite\n"
        "doap train phototour-real --data data/phototour-liberty -o runs/doap-liberty   # and the other two\n"
        "doap eval phototour runs/doap-*/weights.safetensors sift binboost-64 --data data --json phototour.json",
        published="phototour",
    ),
    Section(
        "batch_size",
        "Influence of the training batch size",
        "Figure “Influence of training batch size”",
        "The 128-dimensional descriptor trained on liberty with different batch sizes; mean FPR95 on the other scenes.",
        "doap sweep phototour-real --data data/phototour-liberty --over batch_size=256,512,1024,2048,4096 \\\n"
        "    --test data/phototour-notredame --test data/phototour-yosemite -o runs/lists",
        statement="performance improves with batch size and saturates after 2,048; the figure gives no numbers.",
    ),
    Section(
        "hpatches",
        "HPatches: verification, matching, retrieval",
        "Figure “Results on the HPatches dataset”",
        "Three tasks at three levels of geometric noise, on the test sequences of split a.",
        "doap data download hpatches\n"
        "doap eval hpatches runs/*/weights.safetensors sift rootsift --data data/hpatches --split a "
        "--json hpatches.json",
        statement="with label mining, matching improves by around 6 % over DOAP-ST and 10 % over L2Net, and stays over "
        "50 % mAP in the toughest cases; the figure gives no numbers. Those quoted here are of the full split.",
        published="hpatches",
    ),
    Section(
        "romepatches",
        "RomePatches: patch retrieval",
        "Table 2",
        "Each patch ranks the others of its half; nine of them show the same point.",
        "doap data download romepatches\n"
        "doap train romepatches-real --data data/romepatches -o runs/doap-rome\n"
        "doap eval romepatches runs/doap-rome/weights.safetensors sift --data data/romepatches --json romepatches.json",
        published="romepatches",
    ),
    Section(
        "oxford",
        "Oxford: image matching",
        "Figure “Image matching performance on the Oxford dataset”",
        "Keypoints are detected in both images, patches extracted around them, and nearest neighbours matched.",
        "doap data download oxford\n"
        "doap eval oxford runs/*/weights.safetensors sift liop --data data/oxford --json oxford.json",
        statement="the real-valued DOAP consistently outperforms SIFT and the others, especially on graf and boat; the "
        "figure gives no numbers.",
    ),
    Section(
        "alignment",
        "Alignment by the Spatial Transformer",
        "Appendix, figure “Alignment using the Spatial Transformer in HPatches”",
        "Patches of one point before alignment, aligned with the border repeated, and aligned with zeros beyond it.",
        "doap show alignment runs/st/weights.safetensors --data data/hpatches -o alignment.png",
    ),
    Section(
        "label-mining",
        "Label mining",
        "Appendix, figure “Label mining in HPatches”",
        "Clusters of one sequence's patches: dissimilar patches are distractors for each other, similar ones are "
        "ignored.",
        "doap data mine data/hpatches -o label-mining.png",
    ),
    Section(
        "pairs",
        "Own image pairs",
        "",
        "Not in the paper. Keypoints, matches and verified geometry on image pairs with ground truth.",
        "doap eval pairs runs/*/weights.safetensors sift --data FOLDER --json pairs.json",
    ),
    Section(
        "warped",
        "Photos and warped copies of themselves",
        "",
        "Not in the paper. The ground truth is exact, and any photos can be used.",
        "doap eval warped runs/*/weights.safetensors sift rootsift --data PHOTOS --json warped.json",
    ),
)

QUOTED: dict[str, Callable[[], Table]] = {
    "phototour": partial(phototour_table, None),
    "hpatches": partial(published_table, "hpatches", 1),
    "romepatches": partial(romepatches_table, None),
}
"""Tables of published figures alone, by `Section.published`."""
