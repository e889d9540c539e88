"""Sequences are made by warping one photo, so that what every patch must show is known."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from doap.evaluation.metrics import average_precision
from doap.patches.hpatches import EXTENT, STRIPS, read_strip
from doap.patches.make_hpatches import Settings, choose_frames, cut_strips, make_hpatches, missing_sequences
from doap.photos.frames import overlap, transform_frames, transform_points
from doap.photos.sequences import read_sequence
from doap.photos.views import LEVELS, Level
