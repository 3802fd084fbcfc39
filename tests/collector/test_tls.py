"""An engine behind TCP with TLS, and a Docker context that names it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from forensics.collector.engine import Engine, EngineError
from tests.engines import engine_of

pytestmark = pytest.mark.docker


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, capture_output=True, check=True, timeout=120)


def certificates(folder: Path) -> None:
    """Make an authority, and a certificate each for the engine and for us."""
    openssl(
        folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ca",
        "-keyout", "ca-key.pem", "-out", "ca.pem",
    )  # fmt: skip
    for name, use in (("server", "serverAuth"), ("client", "clientAuth")):
        (folder / "ext").write_text(f"subjectAltName=IP:127.0.0.1\nextendedKeyUsage={use}\n")
        openssl(
            folder, "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
            "-keyout", f"{name}-key.pem", "-out", "csr",
        )  # fmt: skip
        openssl(
            folder, "x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca-key.pem",
            "-CAcreateserial", "-days", "2", "-extfile", "ext", "-out", f"{name}-cert.pem",
        )  # fmt: skip
    shutil.copy(folder / "client-cert.pem", folder / "cert.pem")
    shutil.copy(folder / "client-key.pem", folder / "key.pem")


@pytest.mark.slow
def test_an_engine_behind_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates(tmp_path)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    options = [f"--{n}={tmp_path / f}" for n, f in (
        ("tlscacert", "ca.pem"), ("tlscert", "server-cert.pem"), ("tlskey", "server-key.pem"),
    )]  # fmt: skip
    with engine_of("--tlsverify", *options, "-H", f"tcp://127.0.0.1:{port}") as dockerd:
        address = f"tcp://127.0.0.1:{port}"
        monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
        monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
        engine = Engine.connect(address)
        name = dockerd.run("seq 1 1000")
        engine.wait(name)
        pieces = [piece for _, piece in engine.logs(name, tty=False, follow=True, timestamps=False)]
        assert b"".join(pieces) == b"".join(b"%d\n" % n for n in range(1, 1001))
        assert engine.data_root is None, "a remote engine's files are not ours"
        engine.close()

        monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path / "none"))
        with pytest.raises(EngineError) as wrong:
            Engine.connect(address)
        assert "TLS" in str(wrong.value)
        assert "\n" not in str(wrong.value)

        monkeypatch.delenv("DOCKER_TLS_VERIFY")
        monkeypatch.delenv("DOCKER_CERT_PATH")
        folder = tmp_path / "docker"
        subprocess.run(
            ["docker", "context", "create", "far", "--docker",
             f"host={address},ca={tmp_path}/ca.pem,cert={tmp_path}/cert.pem,key={tmp_path}/key.pem"],
            env=dockerd.environment | {"DOCKER_CONFIG": str(folder)}, capture_output=True, check=True,
        )  # fmt: skip
        (folder / "config.json").write_text(json.dumps({"currentContext": "far"}))
        script = (
            "from forensics.collector.engine import Engine\n"
            "for e in (Engine.connect(), Engine.connect(context='far')): print(e.kind, e.host)\n"
        )
        environment = {**dockerd.environment, "DOCKER_CONFIG": str(folder)}
        environment.pop("DOCKER_HOST")
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, check=False
        )
        assert done.stdout.decode().count(f"docker {address}") == 2, done.stderr.decode()
