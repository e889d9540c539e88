"""The whole road on embedded photos: train two descriptors, judge them, show the result."""
