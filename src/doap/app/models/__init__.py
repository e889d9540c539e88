"""The Models tab: cards, tables and plots of the shipped models."""
