"""Related photos to tracks: scenes, static cameras, structure from motion."""
