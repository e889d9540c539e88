"""Download, unpacking and checks of the official data sets."""
