"""hloc (Hierarchical-Localization): its feature and match files, and doap as an extractor and a matcher in it."""

from doap.bridges.hloc.files import check_names, export_features, export_matches, pair_group
from doap.bridges.hloc.plugin import confs, make_conf, matcher_confs, register
from doap.bridges.hloc.values import bit_value, features_name, match_scores, to_hloc

__all__ = [
    "bit_value",
    "check_names",
    "confs",
    "export_features",
    "export_matches",
    "features_name",
    "make_conf",
    "match_scores",
    "matcher_confs",
    "pair_group",
    "register",
    "to_hloc",
]
