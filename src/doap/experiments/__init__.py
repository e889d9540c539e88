"""Experiments: several trainings compared, as a study or a sweep."""
