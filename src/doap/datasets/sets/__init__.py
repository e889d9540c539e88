"""Containers: patch sets, frame sets, folders of image pairs."""
