"""Studies and sweeps: several trainings compared."""
