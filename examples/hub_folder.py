"""Write a model as a folder for Hugging Face's hub, and load it again: no network is needed.

pip install 'doap[hub]' scikit-image
python examples/hub_folder.py [--model runs/mine/weights.safetensors] [--folder doap-hub] [--push OWNER/NAME]
"""

import argparse

import numpy as np
import skimage

import doap
from doap.bridges.hub import from_pretrained, push_to_hub, save_pretrained

parser = argparse.ArgumentParser(description="Write a model as a folder for Hugging Face's hub, and load it again.")
parser.add_argument("--model", default="doap-tiny-256b", help="name or path of a model")
parser.add_argument("--folder", default="doap-hub", help="folder to create")
parser.add_argument("--push", metavar="OWNER/NAME", help="upload it, too; needs `hf auth login`")
arguments = parser.parse_args()

folder = save_pretrained(arguments.model, arguments.folder)
for file in sorted(folder.iterdir()):
    print(f"{file}: {file.stat().st_size:,} bytes")

image = skimage.data.camera()
first, second = (
    doap.detect_and_describe(image, model, max_keypoints=200)
    for model in (doap.load(arguments.model), from_pretrained(folder))
)
print(f"{second}; the same descriptors: {np.array_equal(first.descriptors, second.descriptors)}")
if arguments.push:
    print(push_to_hub(arguments.model, arguments.push))
