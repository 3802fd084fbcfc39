"""The collector: no container's evidence is lost.

`watch` follows an engine; `hold`, `holder` and `files` take logs from the engine's own files as
they are written (the file tier); `judge` diagnoses what ended, in a process of its own.
"""
