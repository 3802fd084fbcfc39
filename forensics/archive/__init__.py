"""The archive: one folder a run, readable without us.

`model` has the frozen values of `run.json`, `frames` the durable log file, `store` the folder of
runs: who writes, who may read, what a name means. Layout: `<archive>/runs/<run-id>/` with
`run.json`, `log.zst` and derived files.
"""
