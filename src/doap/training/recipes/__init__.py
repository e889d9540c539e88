"""Recipes of trainings, and how they are read."""
