"""From pictures to patches: reading, frames, extraction, jittered views."""
