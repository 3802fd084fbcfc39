"""How command lines look: which options take a value, and the short forms of others.

Container runtimes: `docker run`, `podman run`, `nerdctl run` (their own help). Servers: only which
options are switches, since a word after a switch is not its value.
"""

from __future__ import annotations


def _names(words: str) -> frozenset[str]:
    return frozenset(f"--{word}" for word in words.split())


RUNTIMES = ("docker", "podman", "nerdctl")

#: Long options of `run` and `create` that take no value.
RUN_SWITCHES = _names(
    """
    detach disable-content-trust env-host help http-proxy init interactive no-healthcheck
    no-hostname no-hosts oom-kill-disable privileged publish-all quiet read-only read-only-tmpfs
    replace rm rmi rootfs sig-proxy tls-verify tty unsetenv-all use-api-socket
    """
)

#: Long options of `run` and `create` that take one.
RUN_VALUES = _names(
    """
    add-host annotation arch attach authfile blkio-weight blkio-weight-device cap-add cap-drop
    cgroup-parent cgroupns cgroups cidfile cpu-count cpu-percent cpu-period cpu-quota
    cpu-rt-period cpu-rt-runtime cpu-shares cpus cpuset-cpus cpuset-mems detach-keys device
    device-cgroup-rule device-read-bps device-read-iops device-write-bps device-write-iops dns
    dns-option dns-search domainname entrypoint env env-file expose gidmap gpus group-add
    group-entry health-cmd health-interval health-on-failure health-retries
    health-start-interval health-start-period health-timeout hooks-dir hostname io-maxbandwidth
    io-maxiops ip ip6 ipc isolation kernel-memory label label-file link link-local-ip log-driver
    log-opt mac-address memory memory-reservation memory-swap memory-swappiness mount name
    network network-alias oom-score-adj os passwd-entry pid pids-limit platform pod preserve-fds
    publish pull requires restart runtime sdnotify secret security-opt shm-size shm-size-systemd
    stop-signal stop-timeout storage-opt subgidname subuidname sysctl systemd timeout tmpfs tz
    uidmap ulimit umask user userns uts variant volume volume-driver volumes-from workdir
    """
)

#: Short options of `run`; those that take a value also take it glued on (`-p8000:8000`).
RUN_SHORT = {
    "-a": "--attach",
    "-c": "--cpu-shares",
    "-d": "--detach",
    "-e": "--env",
    "-h": "--hostname",
    "-i": "--interactive",
    "-l": "--label",
    "-m": "--memory",
    "-p": "--publish",
    "-P": "--publish-all",
    "-q": "--quiet",
    "-t": "--tty",
    "-u": "--user",
    "-v": "--volume",
    "-w": "--workdir",
}

#: Options that may stand several times, each adding one.
RUN_LISTS = _names(
    """
    add-host annotation attach blkio-weight-device cap-add cap-drop device device-cgroup-rule
    device-read-bps device-read-iops device-write-bps device-write-iops dns dns-option
    dns-search env env-file expose group-add label label-file link link-local-ip log-opt mount
    network network-alias publish security-opt storage-opt sysctl tmpfs ulimit volume
    volumes-from
    """
)

#: Other spellings of the same option.
RUN_ALIASES = {"--net": "--network", "--net-alias": "--network-alias"}

#: Options whose value names one thing: a new value for the same thing replaces the old one. The
#: separators end the name.
RUN_KEYED = {
    "--ulimit": "=",
    "--env": "=",
    "--label": "=",
    "--log-opt": "=",
    "--sysctl": "=",
    "--annotation": "=",
}

#: Words before a command that only start it.
STARTERS = frozenset(("exec", "sudo", "env", "nohup", "time", "nice", "ionice", "setsid", "stdbuf"))
#: Options of these starters that take a value.
STARTER_VALUES = frozenset(("-u", "-n", "-c", "-g", "--user", "--group", "-o", "-i"))

#: Switches of servers that do not begin with one of `SWITCH_HEADS`.
SWITCHES = _names(
    """
    aggregate-engine-logging allow-credentials api-key-required async-scheduling
    calculate-kv-scales cont-batching cpu-moe data-parallel-multi-port-external-lb
    data-parallel-external-lb data-parallel-hybrid-lb
    dual-chunk-attention embedding embeddings enforce-eager fail-on-environ-validation
    fully-sharded-loras headless hf-token-required is-embedding jinja kv-offload
    language-model-only log-error-stack log-requests lora-init-without-apply metrics mlock
    multi-step-stream-outputs no-mmap offline prefill-round-robin-balance props reranking
    return-hidden-states return-tokens-as-token-ids skip-server-warmup skip-tokenizer-init slots
    stream-output swa-full tokens-only trust-remote-code use-tqdm-on-load verbose webui
    """
)
SWITCH_HEADS = ("--enable-", "--disable-", "--no-", "--skip-", "--use-", "--allow-deprecated-")
#: Options that begin like switches and take a value.
NOT_SWITCHES = frozenset(
    ("--no-repeat-ngram-size", "--disable-by-batch-size", "--use-trtllm-version")
)
#: Options that take several words.
SEVERAL = frozenset(
    (
        "--served-model-name",
        "--lora-modules",
        "--lora-paths",
        "--cudagraph-capture-sizes",
        "--cuda-graph-capture-sizes",
        "--cuda-graph-bs",
        "--middleware",
        "--ignore-patterns",
        "--default-mm-loras",
        "--prompt-adapters",
        "--logits-processors",
        "--config-file",
        "--allowed-media-domains",
        "--cors-allow-origins",
    )
)

#: Short options of servers, by engine.
SHORT = {
    "vllm": {
        "-tp": "--tensor-parallel-size",
        "-pp": "--pipeline-parallel-size",
        "-dp": "--data-parallel-size",
        "-dpn": "--data-parallel-rank",
        "-dpl": "--data-parallel-size-local",
        "-dpa": "--data-parallel-address",
        "-dpp": "--data-parallel-rpc-port",
        "-dpb": "--data-parallel-backend",
        "-dpe": "--data-parallel-external-lb",
        "-dph": "--data-parallel-hybrid-lb",
        "-dpm": "--data-parallel-multi-port-external-lb",
        "-dpr": "--data-parallel-start-rank",
        "-dc": "--diffusion-config",
        "-ep": "--enable-expert-parallel",
        "-pcp": "--prefill-context-parallel-size",
        "-spec-draft-tp": "--speculative-draft-tensor-parallel-size",
        "-dcp": "--decode-context-parallel-size",
        "-q": "--quantization",
        "-r": "--node-rank",
        "-n": "--nnodes",
        "-sc": "--speculative-config",
        "-cc": "--compilation-config",
        "-ac": "--attention-config",
        "-asc": "--api-server-count",
        "-O": "--optimization-level",
    },
    "llama.cpp": {
        "-m": "--model",
        "-c": "--ctx-size",
        "-ngl": "--n-gpu-layers",
        "-b": "--batch-size",
        "-ub": "--ubatch-size",
        "-t": "--threads",
        "-np": "--parallel",
        "-fa": "--flash-attn",
        "-ctk": "--cache-type-k",
        "-ctv": "--cache-type-v",
        "-md": "--model-draft",
        "-hf": "--hf-repo",
        "-a": "--alias",
        "-sm": "--split-mode",
        "-ts": "--tensor-split",
    },
}


def is_switch(name: str) -> bool:
    """Say whether a server's option takes no value."""
    if name in NOT_SWITCHES:
        return False
    return name in SWITCHES or name.startswith(SWITCH_HEADS)


#: Short options that stood for another one in earlier releases: engine, release up to which (not
#: with it), short option, the other one's name, and the key of it that a bare number sets.
#: vLLM 0.11: `-O3` and `-O.level=3` set the level of `--compilation-config`.
SHORT_BEFORE = (("vllm", "0.12.0", "-O", "--compilation-config", "level"),)
