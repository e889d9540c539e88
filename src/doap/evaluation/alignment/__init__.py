"""Effect of the Spatial Transformer on the patches of a group (paper, appendix B)."""
