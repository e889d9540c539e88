"""The demo: match an image pair, train two descriptors on embedded photos, evaluate them, write a page."""
