"""Containers: patch sets, frame sets, and folders of image pairs."""
