"""Measures the command against what people would use instead, on one machine in one run."""
