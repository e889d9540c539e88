"""Download, unpack and check the official data sets."""
