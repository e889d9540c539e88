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
        departures: What differs from the paper's set-up.
    """

    key: str
    title: str
    reference: str
    description: str
    command: str
    statement: str = ""
    published: str = ""
    departures: tuple[str, ...] = ()


SECTIONS = (
    Section(
        "patches",
        "Examples of patches",
        "Figure “Examples from three patch-based datasets”",
        "Patches of one group show the same 3D point.",
        "doap data download romepatches phototour-liberty hpatches\n"
        "doap reproduce figure-patches --data data -o out/paper",
    ),
    Section(
        "phototour",
        "UBC Phototour: patch verification",
        "Table 1",
        "Trained on one scene, tested on another: the rate of non-matching pairs that are accepted at the threshold "
        "which accepts 95 % of the matching pairs.",
        "doap data download phototour-liberty phototour-notredame phototour-yosemite\n"
        "doap reproduce table-1 --data data -o out/paper",
        published="phototour",
        departures=(
            "The paper quotes the other methods from their authors. Here all learned methods are trained alike: with "
            "the same batches, augmentation and schedule, and L2Net as the network, or CS-L2Net where named so. "
            "TFeat and TL-AS-GOR are quoted without augmentation, and trained here with it.",
            "MatchNet, DC-2ch2st+ and CS-SNet-GLoss+ are quoted only.",
            "Binary L2Net+ and CS-L2Net+ are the real-valued models, binarised by sign.",
            "The paper does not give the widths of the three layers of the Spatial Transformer; here they are 16, 32 "
            "and 6.",
        ),
    ),
    Section(
        "batch_size",
        "Influence of the training batch size",
        "Figure “Influence of training batch size”",
        "The 128-dimensional descriptor trained with different batch sizes: on liberty, by the mean FPR95 on the other "
        "scenes; on HPatches and RomePatches, by retrieval mAP.",
        "doap data download phototour-liberty phototour-notredame phototour-yosemite hpatches romepatches\n"
        "doap reproduce figure-batch-size --data data -o out/paper",
        statement="performance improves with batch size and saturates after 2,048, also in HPatches and RomePatches; "
        "the figure gives no numbers.",
        departures=("The paper draws Phototour only.",),
    ),
    Section(
        "hpatches",
        "HPatches: verification, matching, retrieval",
        "Figure “Results on the HPatches dataset”",
        "Three tasks at three levels of geometric noise, on the test sequences of split a.",
        "doap data download hpatches phototour-liberty\ndoap reproduce figure-hpatches --data data -o out/paper",
        statement="with label mining, matching improves by around 6 % over DOAP-ST and 10 % over L2Net, and stays over "
        "50 % mAP in the toughest cases; the figure gives no numbers. Those quoted here are of the full split.",
        published="hpatches",
        departures=(
            "L2Net, HardNet, HardNet++ and TFeat are trained here like DOAP; the paper evaluates the models of their "
            "authors. doap convert reads the published weights of L2Net and HardNet, and doap eval hpatches evaluates "
            "them. DeepDesc is not trained.",
            "Recipes without label mining ignore the patches of the query's own sequence, as section 4.2 says.",
        ),
    ),
    Section(
        "romepatches",
        "RomePatches: patch retrieval",
        "Table 2",
        "Each patch ranks the others of its half; nine of them show the same point.",
        "doap data download romepatches\ndoap reproduce table-2 --data data -o out/paper",
        published="romepatches",
        departures=(
            "AlexNet, PhilippNet and CKN-grad are quoted only.",
            "The paper does not say whether all patches or the 1,000 official queries are ranked; both are measured, "
            "and the table shows all patches.",
        ),
    ),
    Section(
        "oxford",
        "Oxford: image matching",
        "Figure “Image matching performance on the Oxford dataset”",
        "Keypoints are detected in both images, patches extracted around them, and descriptors matched.",
        "doap data download oxford phototour-liberty hpatches\ndoap reproduce figure-oxford --data data -o out/paper",
        statement="the real-valued DOAP consistently outperforms SIFT and the others, especially on graf and boat; the "
        "figure gives no numbers.",
        departures=(
            "The paper names neither its six sequences, nor the overlap threshold, nor whether frames are oriented: "
            "all eight sequences are measured with the threshold of VLBenchmarks and upright frames.",
            "L2Net, HardNet and HardNet++ are trained here like DOAP; the paper evaluates the models of their authors.",
        ),
    ),
    Section(
        "alignment",
        "Alignment by the Spatial Transformer",
        "Appendix B, figure “Alignment using the Spatial Transformer in HPatches”",
        "Patches of one point before alignment, aligned by a model trained with repeated borders, and aligned by a "
        "model trained with zeros beyond the patch.",
        "doap data download hpatches\ndoap reproduce figure-alignment --data data -o out/paper",
        statement="zero padding still produces decent alignment, affects the appearance of patches, and does not help "
        "to improve final performance.",
    ),
    Section(
        "label-mining",
        "Label mining",
        "Appendix C, figure “Label mining in HPatches”",
        "Clusters of one sequence's patches: dissimilar patches are negatives of each other, similar ones are ignored.",
        "doap data download hpatches hpatches-sequences\ndoap reproduce figure-mining --data data -o out/paper",
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
