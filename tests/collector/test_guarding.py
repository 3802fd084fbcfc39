"""The guarded command: what is changed in it, and that nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.collector.guarding import guarded
from forensics.errors import UsageError

MINE = "0123456789ab"
MARK = f"--label=forensics.guard={MINE}"
GONE = "--label=forensics.guard.remove=true"
NAME = f"--name=guarded-{MINE}"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("docker run img", f"docker run {MARK} {NAME} img"),
        ("docker run --rm img x --rm", f"docker run {MARK} {GONE} {NAME} img x --rm"),
        ("docker run -it --rm img", f"docker run {MARK} {GONE} {NAME} -it img"),
        ("docker run --rm=true --name n img", f"docker run {MARK} {GONE} --name n img"),
        ("docker run --rm=false --name=n img", f"docker run {MARK} --rm=false --name=n img"),
        (
            "sudo -E docker --context far container run --rm -p 1:2 img",
            f"sudo -E docker --context far container run {MARK} {GONE} {NAME} -p 1:2 img",
        ),
        (
            "podman run --rm -e A=--rm --gpus all img serve",
            f"podman run {MARK} {GONE} {NAME} -e A=--rm --gpus all img serve",
        ),
        ("exec docker run img", f"exec docker run {MARK} {NAME} img"),
    ],
)
def test_only_what_must_be_is_changed(command: str, expected: str) -> None:
    made = guarded(command.split(), MINE)
    assert " ".join(made.words) == expected
    assert made.remove == (GONE in made.words)


@pytest.mark.parametrize(
    ("command", "driver", "words"),
    [
        ("docker run img", "json-file", None),
        ("docker run img", "local", None),
        ("docker run img", None, None),
        ("docker run img", "none", "--log-driver=json-file"),
        ("docker run img", "fluentd", "--log-driver=json-file"),
        ("docker run --log-driver local img", "none", None),
    ],
)
def test_a_log_that_nobody_could_read_goes_where_it_can_be(
    command: str, driver: str | None, words: str | None
) -> None:
    made = guarded(command.split(), MINE, driver)
    assert [w for w in made.words if w.startswith("--log-driver=")] == ([words] if words else [])
    assert made.kept is None


def test_a_driver_that_was_asked_for_stays() -> None:
    made = guarded(["docker", "run", "--log-driver=none", "img"], MINE, "json-file")
    assert made.kept is not None
    assert "--log-driver=json-file" not in made.words


@pytest.mark.parametrize("detached", ["-d", "--detach", "-itd", "--detach=true"])
def test_detached(detached: str) -> None:
    assert guarded(["docker", "run", detached, "img"], MINE).detached
    assert not guarded(["docker", "run", "img", detached], MINE).detached


@pytest.mark.parametrize(
    "command",
    [
        "docker compose up",
        "docker compose -f a.yml --profile x up -d vllm",
        "docker --context far compose up",
        "docker-compose -p name up",
    ],
)
def test_compose_is_run_as_it_is(command: str) -> None:
    made = guarded(command.split(), MINE)
    assert made.kind == "compose"
    assert " ".join(made.words) == command
    assert made.detached == (" -d" in command)


@pytest.mark.parametrize(
    "command",
    [
        "", "ls", "docker", "docker ps", "docker run", "docker run --rm", "docker create img",
        "docker compose down", "docker compose run x", "docker compose", "sudo", "podman exec x y",
    ],
)  # fmt: skip
def test_what_starts_no_container_is_refused_in_one_line(command: str) -> None:
    with pytest.raises(UsageError) as found:
        guarded(command.split(), MINE)
    assert "\n" not in str(found.value)


WORD = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12)


@given(
    st.lists(st.tuples(st.sampled_from(["-e", "--env", "-v", "--label"]), WORD), max_size=5),
    st.booleans(),
    st.lists(WORD, max_size=5),
)
def test_every_other_word_stays_as_it_is(
    options: list[tuple[str, str]], remove: bool, command: list[str]
) -> None:
    words = [word for pair in options for word in pair]
    asked = ["--rm"] if remove else []

    made = guarded(["docker", "run", *asked, *words, "img", *command], MINE)

    assert list(made.words[-len([*words, "img", *command]) :]) == [*words, "img", *command]
    assert made.remove == remove
    assert "--rm" not in made.words[: len(made.words) - len(command)] or "--rm" in words
