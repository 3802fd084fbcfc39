"""What speculation and the server really achieved, from the log alone.

The stages: `formats` (how lines look) → `table` (lines to a tidy table) → `windows` (what each row
counts, with its rounding error) → `figures` (totals, intervals, throughput) → `advice`. Beside
them `benchfiles` and `counters` read what benchmarks and metrics endpoints say of the same run.
"""
