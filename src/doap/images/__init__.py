"""Images to patches: reading, detection, patch extraction, jittered views."""
