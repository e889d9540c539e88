"""Losses of other papers, with the signature of `AveragePrecisionLoss`."""
