"""The report: one page that mirrors the paper's tables and figures, with what was measured and what was published."""
