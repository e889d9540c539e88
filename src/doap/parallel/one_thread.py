"""Limit libraries that are loaded after this module to one thread. Imported by the fork server before others."""

import os

from doap.parallel.worker import ONE_THREAD

os.environ.update(ONE_THREAD)
