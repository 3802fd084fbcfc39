"""Launch commands: read one from whatever it stands in, change it, and write it back.

`read_all` turns a text (shell script, compose file, systemd unit, Kubernetes manifest, inspect
output) into forms; a form holds one typed `Launch` and knows how to change its own text. `suggest`
applies the fixes of a diagnosis. Nothing is ever written by rendering a model: a change is a
splice into the text as it came, so whatever it does not touch stays byte for byte.
"""
