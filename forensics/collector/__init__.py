"""The collector: what persists the log and the facts of every container, whatever happens to it.

`engine` talks to the container engine, the tiers (`files`, `api`, `journal`, `guard`) bring the
bytes of a log into the archive, `snapshot` and `host` the facts, `watch` decides who does what.
"""
