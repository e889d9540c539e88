"""Commands on models: list, convert, calibrate, export."""
