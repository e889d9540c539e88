"""One HTML page with the tables and figures of the paper: measured results beside published ones."""
