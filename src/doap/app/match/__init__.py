"""The Match tab: two pictures, matched by several methods side by side."""
