"""`helix serve` from the command line: what it prints, starts, waits for and ends. SGLang is a stand-in."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from launch_fake import make_package
from running import ROOT, command

WORKFLOW = 'workflow t(a: text)\nmodel main {{ name: "{model}" }}\nx = llm main {{ user "{{{{ a }}}}" }}\noutput x\n'


def write(folder: Path, text: str) -> None:
    (folder / "w.helix").write_text(text)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def environment(folder: Path, **more: str) -> dict[str, str]:
    made = make_package(folder)
    return {**made, "PYTHONPATH": f"{made['PYTHONPATH']}{os.pathsep}{ROOT}", **more}


def flags(line: str) -> dict[str, str | None]:
    """The flags of a printed command, as a shell would read them."""
    words = shlex.split(line)
    words = words[words.index("sglang.launch_server") + 1 :]
    found: dict[str, str | None] = {}
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = value if equals else None
        else:
            found[list(found)[-1]] = word
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(path: Path, seconds: float = 20.0) -> None:
    ends = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < ends, f"no {path}"
        time.sleep(0.02)


def read_until(stream: object, what: bytes) -> bytes:
    said = b""
    while what not in said:
        line = stream.readline()  # type: ignore[attr-defined]
        assert line, said
        said += line
    return said


# --- what it prints -----------------------------------------------------------------------------------------------


def test_a_dry_run_prints_one_line_for_the_shell_and_a_reason_for_each_flag() -> None:
    done = command("serve", "--model", "meta/llama", "--dry-run", "--kv-tokens", 50_000, "--kv-dtype", "fp8_e5m2")
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    assert shlex.split(line)[:3] == [sys.executable, "-m", "sglang.launch_server"]
    given = flags(line)
    assert given["--model-path"] == "meta/llama"
    assert (given["--host"], given["--port"]) == ("127.0.0.1", "30000")
    assert given["--max-total-tokens"] == "50000"
    assert given["--kv-cache-dtype"] == "fp8_e5m2"
    assert given["--schedule-policy"] == "lpm"
    assert "--enable-cache-report" in given
    assert "--dp-size" not in given
    reasons = done.stderr.splitlines()
    for name in given:
        (reason,) = [each for each in reasons if each.split()[0] == name]
        assert len(reason.removeprefix(f"  {name}").split()) > 2


def test_ranks_gpus_and_own_flags_are_in_the_command() -> None:
    own = ("--", "--tp-size", 2, "--schedule-policy=fcfs", "--data-parallel-size", 4, "--trust-remote-code")
    done = command("serve", "-m", "m", "--dry-run", "--ranks", 2, "--gpu", "2,3", "--device", "cuda", *own)
    assert done.stdout.startswith("CUDA_VISIBLE_DEVICES=2,3 ")
    assert done.stdout.count("--schedule-policy") == 1
    given = flags(done.stdout)
    assert (given["--schedule-policy"], given["--tp-size"], given["--device"]) == ("fcfs", "2", "cuda")
    assert "--dp-size" not in given
    assert given["--data-parallel-size"] == "4"
    assert "given after `--`" in done.stderr


def test_flags_of_one_s_own_need_no_workflow() -> None:
    done = command("serve", "-m", "m", "--dry-run", "--quiet", "--", "--tp", 8)
    assert (done.returncode, done.stderr) == (0, "")
    assert flags(done.stdout)["--tp"] == "8"


def test_the_model_is_the_one_that_the_workflow_names(tmp_path: Path) -> None:
    write(tmp_path, WORKFLOW.format(model="org/small"))
    done = command("serve", "w.helix", "--dry-run", cwd=tmp_path)
    assert flags(done.stdout)["--model-path"] == "org/small"
    done = command("serve", "w.helix", "--dry-run", "--model", "other/large", cwd=tmp_path)
    assert flags(done.stdout)["--model-path"] == "other/large"
    assert flags(done.stdout)["--served-model-name"] == "org/small"


@pytest.mark.parametrize(
    ("model", "extra", "left_out"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", (), None),
        ("Qwen/Qwen3-8B-FP8", (), None),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", (), "of Qwen/Qwen3-Next-80B-A3B-Instruct nobody knows"),
        ("qwen3-8b", ("--speculative-algorithm=EAGLE",), "it does not go with --speculative-algorithm"),
        ("qwen3-8b", ("--disaggregation-mode", "prefill"), "it does not go with --disaggregation-mode"),
        ("qwen3-8b", ("--tp-size", "2"), None),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", ("--enable-mixed-chunk",), None),
    ],
)
def test_passes_are_mixed_where_that_is_known_to_be_right(
    model: str, extra: tuple[str, ...], left_out: str | None
) -> None:
    done = command("serve", "-m", model, "--dry-run", "--", *extra)
    assert done.returncode == 0
    assert ("--enable-mixed-chunk" in flags(done.stdout)) == (left_out is None)
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: --enable-mixed-chunk")]
    assert len(notes) == (left_out is not None)
    assert left_out is None or notes[0].endswith(left_out)


def test_whether_passes_are_mixed_is_read_from_a_model_s_folder(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    for config, mixes in (
        ({"model_type": "qwen3"}, True),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]}, True),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "linear_attention"]}, False),
        ({"model_type": "other", "text_config": {"model_type": "llama"}}, True),
        ({"model_type": "mamba2"}, False),
        ({"model_type": "llama", "layer_types": 5}, False),
        ([], False),
    ):
        file.write_text(json.dumps(config))
        assert ("--enable-mixed-chunk" in command("serve", "-m", tmp_path, "--dry-run").stdout) == mixes
    file.unlink()
    assert "--enable-mixed-chunk" not in command("serve", "-m", tmp_path, "--dry-run").stdout


def test_the_cpu_recipe_is_printed_with_its_environment(tmp_path: Path) -> None:
    home = tmp_path / "a folder"
    done = command("serve", "--cpu", "--dry-run", "--ranks", 2, env={"HELIX_SGLANG_HOME": str(home)})
    words = shlex.split(done.stdout)
    assert "SGLANG_USE_CPU_ENGINE=1" in words
    assert any(word.startswith("SGLANG_CPU_OMP_THREADS_BIND=") for word in words)
    assert str(home / "venv" / "bin" / "python") in words
    assert flags(done.stdout)["--device"] == "cpu"
    assert flags(done.stdout)["--dtype"] == "float32"
    assert flags(done.stdout)["--dp-size"] == "2"
    assert "--enable-mixed-chunk" in flags(done.stdout)
    assert "nothing is installed" in done.stderr
    assert not home.exists()


def test_a_table_fits_the_settings_to_its_rows(tmp_path: Path) -> None:
    write(tmp_path, WORKFLOW.format(model="org/small"))
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"a": "row {number}"}}\n' for number in range(24)))
    done = command("serve", "w.helix", "--dry-run", cwd=tmp_path)
    assert "--chunked-prefill-size" in flags(done.stdout)
    assert "these rows want" not in done.stderr
    done = command("serve", "w.helix", "-i", "rows.jsonl", "--ranks", 2, "--dry-run", cwd=tmp_path)
    assert "--max-total-tokens" not in flags(done.stdout)
    assert "these rows want a KV cache of " in done.stderr
    more = ("--kv-tokens", 4096, "--", "--max-running-requests", 3)
    done = command("serve", "w.helix", "-i", "rows.jsonl", "--dry-run", *more, cwd=tmp_path)
    assert flags(done.stdout)["--max-total-tokens"] == "4096"
    assert done.stdout.count("--max-running-requests") == 1
    assert flags(done.stdout)["--max-running-requests"] == "3"


# --- what is wrong ------------------------------------------------------------------------------------------------

TWO = WORKFLOW.format(model="one") + ""
TWO = TWO.replace("output x", 'model other { name: "two" }\ny = llm other { user "{{ x }}" }\noutput y')


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "which model shall be served? no workflow is given"),
        (("none.helix",), "which model shall be served? none.helix names none"),
        (("two.helix",), "two.helix names several models (one, two), and a server has one"),
        (("--model", "./nowhere"), "the model folder ./nowhere does not exist"),
        (("--input", "rows.jsonl", "-m", "m"), "--input is for the rows of a workflow, and none is given"),
        (("none.helix", "-m", "m", "--input", "rows.jsonl"), "rows.jsonl"),
        (("--cpu", "--model", "m"), "--cpu brings its own model and Python; --model is for"),
        (("missing.helix", "--cpu"), "the workflow missing.helix does not exist"),
        (("--model", "m", "--python", "/nowhere/python"), "/nowhere/python cannot be run"),
        (("--model", "m", "--host", "no.such.invalid"), "--host no.such.invalid is no address of this machine"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(given: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "none.helix").write_text('workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput x\n')
    (tmp_path / "two.helix").write_text(TWO)
    done = command("serve", *given, "--quiet", "--port", free_port(), cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_sglang_is_one_message_with_what_to_install() -> None:
    done = command("serve", "-m", "m", "-q", "--port", free_port(), env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"SGLang is not installed for {sys.executable}" in line
    assert "pip install 'helix-workflows[sglang]'" in line


def test_a_port_that_is_taken_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = command("serve", "-m", "m", "-q", "--port", port, env=environment(tmp_path))
    assert done.returncode == 2
    assert f"port {port} of 127.0.0.1 cannot be used" in done.stderr
    assert not (tmp_path / "argv.json").exists()


# --- what it starts -----------------------------------------------------------------------------------------------


def started(folder: Path, port: int, *more: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "helix", "serve", "w.helix", "--port", str(port), *more],
        cwd=folder,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_says_when_it_is_ready_and_ctrl_c_ends_all_of_it(how: signal.Signals, tmp_path: Path) -> None:
    write(tmp_path, WORKFLOW.format(model="org/small"))
    env, port = environment(tmp_path), free_port()
    process = started(tmp_path, port, "--", "--context-length", "4096", env=env)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        said = read_until(process.stderr, b"ready after").decode()
        assert f"helix run w.helix --engine sglang://127.0.0.1:{port}" in said
        printed = process.stdout.readline().decode()
        argv = json.loads((tmp_path / "argv.json").read_text())
        assert shlex.split(printed)[3:] == argv
        assert argv[-2:] == ["--context-length", "4096"]
        pids = json.loads((tmp_path / "pids.json").read_text())
        assert all(map(alive, pids))
        second = command("serve", "w.helix", "-q", "--port", port, cwd=tmp_path, env=env)
        assert second.returncode == 2
        assert f"an SGLang server answers on port {port} already" in second.stderr
        process.send_signal(how)
        _, rest = process.communicate(timeout=20)
        assert process.returncode == 0
        assert b"the server has ended" in rest
        assert not any(map(alive, pids))
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("quiet", [False, True])
def test_a_server_that_does_not_come_up_is_an_error_with_what_it_said(quiet: bool, tmp_path: Path) -> None:
    write(tmp_path, WORKFLOW.format(model="org/small"))
    more = ("--quiet",) if quiet else ()
    env = environment(tmp_path, FAKE_SGLANG_HOW="broken")
    done = command("serve", "w.helix", "--port", free_port(), *more, cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "SGLang ended before it was ready, with code 1" in done.stderr
    assert "no GPU is here" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_ends_by_itself_later_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, WORKFLOW.format(model="org/small"))
    env = environment(tmp_path, FAKE_SGLANG_HOW="ends")
    done = command("serve", "w.helix", "--port", free_port(), cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "with code 7" in done.stderr
    pids = json.loads((tmp_path / "pids.json").read_text())
    assert not any(map(alive, pids))


def test_an_interrupt_before_it_is_ready_ends_with_130(tmp_path: Path) -> None:
    write(tmp_path, WORKFLOW.format(model="org/small"))
    env, port = environment(tmp_path), free_port()
    # A package that never listens: only the interrupt ends it.
    launch = tmp_path / "site" / "sglang" / "launch_server.py"
    launch.write_text(launch.read_text().replace("http.server.HTTPServer(", "time.sleep(600)\nprint("))
    process = started(tmp_path, port, env=env)
    try:
        wait_for(tmp_path / "pids.json")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode == 130
        time.sleep(0.1)
        assert not any(map(alive, json.loads((tmp_path / "pids.json").read_text())))
    finally:
        process.kill()
        process.communicate()
