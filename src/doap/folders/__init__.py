"""Folders of any size: describe all images, find similar ones, match many pairs."""

from doap.folders.collection import FeatureCollection
from doap.folders.describing import DescribeSummary, describe_folder
from doap.folders.images import NamedImage, find_images
from doap.folders.match_store import MatchCollection
from doap.folders.matching import MatchSettings, MatchSummary, match_pairs
from doap.folders.pairs import Pair, all_pairs, read_pairs
from doap.folders.retrieval import retrieve_pairs
from doap.folders.settings import DescribeSettings

__all__ = [
    "DescribeSettings",
    "DescribeSummary",
    "FeatureCollection",
    "MatchCollection",
    "MatchSettings",
    "MatchSummary",
    "NamedImage",
    "Pair",
    "all_pairs",
    "describe_folder",
    "find_images",
    "match_pairs",
    "read_pairs",
    "retrieve_pairs",
]
