"""The Harris-Affine detector of VLFeat, written from its documentation and checked against the library."""
