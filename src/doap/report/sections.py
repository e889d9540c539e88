"""The sections of the report, in the paper's order: what each shows, and the commands that make it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A table or figure of the paper.

    Attributes:
        key: the benchmark whose results it shows; "batch_size" for the sweep of it, or the name of a picture.
        title: of the section.
        place: in the paper; empty for what is not in it.
        about: what is measured, in a sentence or two.
        said: what the paper says of it, where it prints no table.
        command: makes the result.
        published: the name of its quoted figures in published.yaml.
    """

    key: str
    title: str
    place: str
    about: str
    command: str
    said: str = ""
    published: str = ""


SECTIONS = (
    Section(
        "phototour",
        "UBC Phototour: telling patches apart",
        "Table 1",
        "Trained on one scene, tested on another: how many of the pairs that do not match are accepted at the "
        "threshold which accepts 95 % of those that do.",
        "doap data download phototour-liberty phototour-notredame phototour-yosemite\n"
        "doap train phototour-real --data data/phototour-liberty -o runs/doap-liberty   # and the other two\n"
        "doap eval phototour --data data --models runs/doap-*/weights.safetensors sift binboost-64 "
        "--json phototour.json",
        published="phototour",
    ),
    Section(
        "batch_size",
        "Influence of the training batch size",
        "Figure “Influence of training batch size”",
        "The 128-dimensional descriptor trained on liberty with lists of different length; mean FPR95 on the others.",
        "doap sweep phototour-real --data data/phototour-liberty --over batch_size=256,512,1024,2048,4096 \\\n"
        "    --test data/phototour-notredame --test data/phototour-yosemite -o runs/lists",
        said="performance improves with batch size and saturates after 2,048; the curve is a picture without numbers.",
    ),
    Section(
        "hpatches",
        "HPatches: verification, matching, retrieval",
        "Figure “Results on the HPatches dataset”",
        "Three tasks at three levels of geometric noise, on the test sequences of split a.",
        "doap data download hpatches\n"
        "doap eval hpatches --data data/hpatches --split a --models runs/*/weights.safetensors sift rootsift "
        "--json hpatches.json",
        said="with label mining, matching improves by around 6 % over DOAP-ST and 10 % over L2Net, and stays over 50 % "
        "mAP in the toughest cases; the bars are a picture without numbers. Those quoted here are of the full split.",
        published="hpatches",
    ),
    Section(
        "romepatches",
        "RomePatches: patch retrieval",
        "Table 2",
        "A patch ranks the others of its half; nine of them show the same point.",
        "doap data download romepatches\n"
        "doap train romepatches-real --data data/romepatches -o runs/doap-rome\n"
        "doap eval romepatches --data data/romepatches --models runs/doap-rome/weights.safetensors sift "
        "--json romepatches.json",
        published="romepatches",
    ),
    Section(
        "oxford",
        "Oxford: matching images",
        "Figure “Image matching performance on the Oxford dataset”",
        "Interest points detected in both images, patches cut around them, nearest neighbours matched.",
        "doap data download oxford\n"
        "doap eval oxford --data data/oxford --models runs/*/weights.safetensors sift liop --json oxford.json",
        said="the real-valued DOAP consistently outperforms SIFT and the others, especially on graf and boat; the bars "
        "are a picture without numbers.",
    ),
    Section(
        "alignment",
        "Alignment by the Spatial Transformer",
        "Appendix, figure “Alignment using the Spatial Transformer in HPatches”",
        "Patches of one point as they are, aligned with the border repeated, and aligned with zeros beyond it.",
        "doap show alignment runs/st/weights.safetensors --data data/hpatches -o alignment.png",
    ),
    Section(
        "label-mining",
        "Label mining",
        "Appendix, figure “Label mining in HPatches”",
        "Clusters of one sequence's patches: those far apart are distractors for each other, those alike are ignored.",
        "doap data mine data/hpatches -o label-mining.png",
    ),
    Section(
        "pairs",
        "Pairs of real images",
        "",
        "Not in the paper. Keypoints, matching and verified geometry on pairs of images whose truth is known.",
        "doap eval pairs --data DIR --models runs/*/weights.safetensors sift --json pairs.json",
    ),
    Section(
        "warped",
        "Photos and warped copies of themselves",
        "",
        "Not in the paper. The truth is known to the pixel, and any photos will do.",
        "doap eval warped --data PHOTOS --models runs/*/weights.safetensors sift rootsift --json warped.json",
    ),
)
