"""COLMAP: images to a database with features and verified matches of doap, and to a reconstruction."""

from doap.bridges.colmap.cameras import CameraSettings
from doap.bridges.colmap.pairs import PairSettings
from doap.bridges.colmap.project import build_project, import_into_database
from doap.bridges.colmap.settings import ProjectSettings, ProjectSummary

__all__ = [
    "CameraSettings",
    "PairSettings",
    "ProjectSettings",
    "ProjectSummary",
    "build_project",
    "import_into_database",
]
