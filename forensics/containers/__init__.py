"""The container engine, Docker or Podman: the only package that talks to it.

Connections are those of Docker's own SDK (unix, tcp with TLS, ssh, contexts). Streams are read
here: the SDK takes five times as long over them, gives no way to end them from another thread, and
rounds the time from which on a log is wanted. API: Docker Engine 1.24 and later.
"""
