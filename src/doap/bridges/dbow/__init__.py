"""Vocabularies of binary descriptors for ORB-SLAM, DBoW2 and DBoW3."""

from doap.bridges.dbow.building import BuildSummary, build_vocabulary
from doap.bridges.dbow.formats import read_vocabulary, write_vocabulary
from doap.bridges.dbow.thresholds import Thresholds, calibrate_thresholds
from doap.bridges.dbow.training import train_vocabulary
from doap.bridges.dbow.vocabulary import BagOfWords, Vocabulary, score

__all__ = [
    "BagOfWords",
    "BuildSummary",
    "Thresholds",
    "Vocabulary",
    "build_vocabulary",
    "calibrate_thresholds",
    "read_vocabulary",
    "score",
    "train_vocabulary",
    "write_vocabulary",
]
