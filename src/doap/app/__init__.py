"""The local web page of `doap app`: a foundation, and one folder per tab.

Gradio reads its settings from the environment when it is imported, so they are set here, before any of its imports.
"""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # nothing is sent or asked for
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
