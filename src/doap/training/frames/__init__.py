"""Training of networks that correct frames."""
