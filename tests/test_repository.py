"""The repository as others receive it: locks, wheel, commands, and files free of our machines."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import uv

ROOT = Path(__file__).parents[1]
LOCKS = ("dev", "runtime", "test", "uv")


def run(
    *command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command with no standard input and its output kept."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def succeed(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command that must end with exit code 0; what it wrote to stdout."""
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tracked_files() -> list[Path]:
    """Every file that a clone would hold, and that is still there."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    # A checkout may belong to somebody else, as in a container.
    names = succeed("git", "-c", "safe.directory=*", "ls-files", "-z").split("\0")
    return [path for name in names if name and (path := ROOT / name).is_file()]


def requirements(lock: str) -> list[str]:
    """The requirements of a lock, each on one line with its hashes, without comments."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return "\n".join(lines).replace("\\\n", " ").splitlines()


# ------------------------------------------------------------------------------------------- locks


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_names_no_place_to_download_from(lock: str) -> None:
    """Where packages come from is the choice of whoever installs them."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()

    assert not re.findall(
        r"\w+://\S*|(?<![\w-])-{1,2}(?!hash=|c requirements)[a-z]\S*|\S+ @ \S+", text
    )


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_pins_every_requirement_with_hashes(lock: str) -> None:
    """`--require-hashes` then holds for all that is installed."""
    pinned = requirements(lock)

    assert pinned
    for requirement in pinned:
        assert re.match(r"[a-z0-9-]+(\[[a-z,]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", requirement)


@pytest.mark.parametrize("lock", ["runtime", "test", "uv"])
def test_smaller_locks_agree_with_the_development_lock(lock: str) -> None:
    """What is tested is what users install."""
    assert set(requirements(lock)) <= set(requirements("dev"))


# ------------------------------------------------------------------------------------------- wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from an sdist built from the tree, as a release is."""
    out = tmp_path_factory.mktemp("build")
    build = (uv.find_uv_bin(), "build", "--python", sys.executable, "--no-build-isolation")
    succeed(*build, "--out-dir", out)
    (built,) = out.glob("*.whl")
    return built


@pytest.mark.slow
def test_wheel_holds_the_package_and_every_rule(wheel: Path) -> None:
    """The signatures travel inside the package."""
    sources = {
        f"forensics/{path.relative_to(ROOT / 'forensics').as_posix()}"
        for path in (ROOT / "forensics").rglob("*.py")
    }
    rules = {
        f"forensics/_rules/{path.relative_to(ROOT / 'rules').as_posix()}"
        for path in (ROOT / "rules").rglob("*.yaml")
    }
    assert rules

    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    assert sources | rules | {"forensics/py.typed"} <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"forensics"}


@pytest.mark.slow
def test_installed_wheel_works_away_from_the_tree(wheel: Path, tmp_path: Path) -> None:
    """With the locked dependencies alone, in any folder, the command finds its rules."""
    uv_bin = uv.find_uv_bin()
    python = tmp_path / "venv" / "bin" / "python"
    succeed(uv_bin, "venv", "--python", sys.executable, tmp_path / "venv")
    install = (uv_bin, "pip", "install", "--python", python)
    succeed(*install, "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt")
    succeed(*install, "--no-deps", wheel)
    command = python.with_name("forensics")

    version = succeed(command, "--version", cwd=tmp_path)
    rules = succeed(command, "rules", "list", cwd=tmp_path)

    assert wheel.name.split("-")[1] in version
    assert [line for line in rules.splitlines() if re.search(r"\b[a-z0-9_]+\.[a-z0-9-]+", line)]


# ---------------------------------------------------------------------------------------- commands


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_make_help_names_every_target() -> None:
    """`make` alone tells what there is."""
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony
    targets = phony[1].split()

    shown = re.findall(r"^  make (\S+)  +\S", succeed("make", "--no-print-directory"), re.MULTILINE)

    assert shown == targets


@pytest.mark.parametrize(
    "test",
    [
        "import pytest\ndef test(): pytest.skip('no engine')\n",
        "import pytest\n@pytest.mark.skip\ndef test(): pass\n",
        "import pytest\npytest.importorskip('no_such_module')\ndef test(): pass\n",
    ],
    ids=["call", "mark", "module"],
)
def test_skipped_test_fails_in_ci_only(tmp_path: Path, test: str) -> None:
    """What CI does not run, it does not prove."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_it.py").write_text(test)
    (tmp_path / "test_other.py").write_text("def test(): pass\n")
    pytest_here = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")

    elsewhere = run(*pytest_here, cwd=tmp_path, env=os.environ | {"CI": ""})
    in_ci = run(*pytest_here, cwd=tmp_path, env=os.environ | {"CI": "true"})

    assert elsewhere.returncode == 0, elsewhere.stdout
    assert in_ci.returncode in {1, 2}, in_ci.stdout
    assert "no test may be skipped in CI" in in_ci.stdout


def test_expected_failure_passes_in_ci(tmp_path: Path) -> None:
    """An xfail runs, so it is no skip."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.xfail\ndef test(): assert False\n"
    )

    done = run(
        sys.executable,
        *("-m", "pytest", "-p", "no:cacheprovider"),
        cwd=tmp_path,
        env=os.environ | {"CI": "true"},
    )

    assert done.returncode == 0, done.stdout


# ------------------------------------------------------------------------------------------- files


def test_no_tracked_file_names_this_machine() -> None:
    """A clone works anywhere: no path of a checkout or a person's home, no private index."""
    ours = re.compile(
        re.escape(f"{ROOT}/") + r"|/(?:home|Users)/[a-z]|\bfile:///|--(?:extra-)?index-url[ =]\S"
        r"|--find-links[ =]\S"
    )
    # Logs, and the rules' tests made from them, hold the paths of the machines that printed them.
    quoted = (ROOT / "samples", ROOT / "rules", ROOT / "docs" / "rules", Path(__file__))

    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked_files()
        if not any(path.is_relative_to(place) for place in quoted)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if ours.search(line)
    ]

    assert found == []


def test_no_tracked_file_is_left_half_merged() -> None:
    """Conflict markers are no content."""
    found = [
        path.relative_to(ROOT)
        for path in tracked_files()
        if re.search(r"(?m)^(<{7} |>{7} )", path.read_text(errors="replace"))
    ]

    assert found == []
