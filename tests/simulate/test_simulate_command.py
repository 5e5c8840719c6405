"""`helix simulate`: its formats, its options and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from running import command, inside, jsonl, lines

import helix
from helix.errors import OptionError

TEXT = """
workflow letters(policy: text, question: text)

model main {
  temperature: 0
  max_tokens: 120
}

answer = llm main {
  system "By this policy: {{ policy }}"
  user "{{ question }}"
}

kind = llm main -> choice["order", "return", "other"] {
  system "By this policy: {{ policy }}"
  user "{{ question }} Which kind?"
}

letter = llm main {
  system "By this policy: {{ policy }}"
  user "{{ question }} Write a letter that says: {{ answer }} ({{ kind }})"
}

output kind, letter
"""
ROWS = [
    {"policy": f"Number {at % 3}. " + "Whoever sends a thing back gets the money. " * 20, "question": f"Lamp {at}?"}
    for at in range(18)
]
QUICK = ("--no-what-if", "--no-plain")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text(jsonl(ROWS), encoding="utf-8")
    (tmp_path / "letters.helix").write_text(TEXT, encoding="utf-8")
    return tmp_path


@pytest.fixture
def simulate(folder: Path, monkeypatch: Any, capfd: Any) -> Any:
    """Runs the command over the files of the folder, in this process."""

    def run(*more: str, source: str | None = "rows.jsonl", model: str | None = "llama-3.1-8b") -> Any:
        given = [] if source is None else ["-i", source]
        named = [] if model is None else ["-m", model]
        arguments = ["simulate", "letters.helix", *given, *named, *more]
        return inside(*arguments, cwd=folder, monkeypatch=monkeypatch, capfd=capfd)

    return run


class Page(HTMLParser):
    """A page: tags that close in order, and its text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[str] = []
        self.labels: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        found = dict(attrs)
        self.links += [f"{tag} {name}" for name in found if name in ("src", "href") or name.startswith("on")]
        if tag == "svg":
            self.labels.append(found.get("aria-label") or "")
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += data


def here(value: Any) -> Any:
    """A forecast without what this machine took."""
    if isinstance(value, dict):
        return {key: 0 if key in ("seconds_here", "planning_here") else here(each) for key, each in value.items()}
    return [here(each) for each in value] if isinstance(value, list) else value


# Figures that no scheduler changes; of all others a golden file holds what kind they are.
FIXED = {
    "version", "ranks", "decode_ranks", "tp", "gpus", "kv_tokens", "max_running", "input", "failed", "llm", "merged",
    "tools", "rank", "prompt", "generated",
}  # fmt: skip


def masked(value: Any, name: str = "") -> Any:
    """A forecast without what a better scheduler would change."""
    if isinstance(value, dict):
        return {key: "..." if key == "timeline" else masked(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [masked(each, name) for each in value]
    if isinstance(value, float) or name == "sha256":
        return type(value).__name__
    if name == "notes":
        return re.sub(r"\d+", "N", value)
    return "int" if isinstance(value, int) and name not in FIXED else value


def test_text_says_what_a_person_wants_to_know(simulate: Any) -> None:
    ran = simulate("--gpu", "h100", "--ranks", "2", "--price", "2.5")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    text = " ".join(ran.stdout.split())
    for said in (
        "letters: 18 rows of rows.jsonl simulated on 2 x h100, llama-3.1-8b",
        "times: linear:h100",
        "times the lower bound",
        "binds (critical-path",
        "GPU time",
        "USD at 2.5 for an hour of a GPU",
        "hit rate",
        "warm-up",
        "435,259 tokens a rank, locked to",
        "plain / optimized",
        "note: times are fitted to estimates of aiconfigurator 0.12.0",
        "note: lengths of replies are guessed",
    ):
        assert said in text, said
    assert re.search(r"\nlog [0-9a-f]{64} \([\d,]+ events\)\n$", ran.stdout)
    for row in (r"answer +18 .* 60 +declared", r"kind +18 .* type", r"h100 +8 +8 ", r"a100 +1 +1 .* -", r"h200 +4 +4 "):
        assert re.search(rf"\n{row}", ran.stdout), row


def test_json_is_as_it_was(simulate: Any, update_golden: bool) -> None:
    ran = simulate(
        "--gpu", "h100x2", "--format", "json", "--what-if-ranks", "1,2", "--what-if-gpus", "l4", "--price", "2"
    )
    assert ran.returncode == 0, ran.stderr
    golden = Path(__file__).with_name("golden.json")
    shown = json.dumps(masked(json.loads(ran.stdout)), indent=1) + "\n"
    if update_golden:
        golden.write_text(shown, encoding="utf-8")
    assert shown == golden.read_text(encoding="utf-8")


def test_json_adds_up(simulate: Any) -> None:
    data = json.loads(simulate("--ranks", "2", "--format", "json", "--price", "h100=3,a100=1.5").stdout)
    made, plain = data["optimized"], data["plain"]
    tokens = made["tokens"]
    assert tokens["prompt"] == sum(step["prompt"] for step in made["steps"])
    assert tokens["generated"] == sum(step["generated"] for step in made["steps"])
    assert tokens["hit_rate"] == pytest.approx(tokens["cached"] / tokens["prompt"])
    assert sum(phase["calls"] for phase in made["phases"]) == made["calls"]["llm"] == 54
    assert sum(phase["prompt"] for phase in made["phases"]) == tokens["prompt"]
    assert made["phases"][-1]["ends"] == pytest.approx(made["seconds"]["makespan"])
    assert made["gpu_hours"] == pytest.approx(2 * made["seconds"]["makespan"] / 3600)
    assert made["money"] == pytest.approx(3 * made["gpu_hours"])
    bounds = made["bounds"]
    assert bounds["lower_bound"] == max(bounds[name] for name in ("critical_path", "engine", "kv_area", "tools"))
    assert bounds["makespan_over_bound"] == pytest.approx(made["seconds"]["makespan"] / bounds["lower_bound"])
    assert bounds["makespan_over_bound"] >= 1
    assert plain["tokens"]["prefilled"] > tokens["prefilled"]
    busy = sum(rank["prefill"] + rank["decode"] for rank in made["ranks"])
    assert 0 < busy <= 2 * made["seconds"]["makespan"]
    line = made["timeline"]
    assert len(line["prefill"]) == 2
    assert sum(map(sum, line["prefill"])) * line["span"] == pytest.approx(
        sum(rank["prefill"] for rank in made["ranks"]), rel=0.05
    )
    by = {(case["gpu"], case["ranks"]): case["simulated"] for case in data["what_if"]}
    assert by["h100", 2]["log"] == made["log"]
    assert by["a100", 1]["money"] == pytest.approx(1.5 * by["a100", 1]["gpu_hours"])
    assert by["h200", 1]["money"] is None


def test_a_page_is_whole_and_can_be_read_without_its_plots(simulate: Any, folder: Path) -> None:
    ran = simulate("--ranks", "2", "--output", "page.html")
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr == "page.html: written\n"
    html = (folder / "page.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(html)
    page.close()
    assert page.open == []
    assert page.links == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.seen)
    assert html.startswith("<!doctype html>\n<html lang=")
    assert page.seen.count("svg") == len(page.labels) == 5
    for label, said in zip(
        page.labels,
        ("What each rank does. rank 0: prefill", "Hit rate of the calls admitted. hit rate by time: optimized plan",
         "KV cache of all ranks. tokens by time: locked", "Makespan against GPUs. makespan by GPUs: h100 goes from",
         "GPU time of the whole batch. GPU hours: 1:"),
        strict=True,
    ):  # fmt: skip
        assert said in label
    assert page.seen.count("figure") == 5
    assert html.count("Data of this plot") == 5
    assert html.count('class="drawing" tabindex="0"') == 5
    assert html.count("prefers-color-scheme: dark") >= 3
    text = " ".join(page.text.split())
    for said in ("Plain and optimized", "What if", "over the lower bound", "18 rows of rows.jsonl simulated on"):
        assert said in text


def test_equal_options_make_equal_logs_in_every_process(simulate: Any, folder: Path) -> None:
    arguments = (
        "simulate",
        "letters.helix",
        "-i",
        "rows.jsonl",
        "-m",
        "llama-3.1-8b",
        "--format",
        "json",
        "--ranks",
        "2",
    )
    made = []
    for seed in ("1", "2"):
        more = ("--what-if-gpus", "h100", "--what-if-ranks", "1")
        ran = command(*arguments, *more, cwd=folder, env={"PYTHONHASHSEED": seed})
        assert ran.returncode == 0, ran.stderr
        made.append(json.dumps(here(json.loads(ran.stdout))))
    assert made[0] == made[1]
    other = simulate("--format", "json", "--ranks", "2", "--seed", "3", *QUICK)
    first = json.loads(made[0])["optimized"]["log"]["sha256"]
    assert json.loads(other.stdout)["optimized"]["log"]["sha256"] != first


def test_more_and_larger_gpus_are_never_slower(simulate: Any) -> None:
    options = ("--format", "json", "--no-plain", "--what-if-ranks", "1,2,4,8", "--output-tokens", "400")
    cases = json.loads(simulate(*options).stdout)["what_if"]
    times = {(case["gpu"], case["ranks"]): case["simulated"]["seconds"]["makespan"] for case in cases}
    bounds = {(case["gpu"], case["ranks"]): case["simulated"]["bounds"]["lower_bound"] for case in cases}
    for gpu in ("a100", "h100", "h200"):
        for few, many in ((1, 2), (2, 4), (4, 8)):
            assert times[gpu, many] <= 1.01 * times[gpu, few], (gpu, few)
    for ranks in (1, 2, 4, 8):
        assert times["h200", ranks] <= times["h100", ranks] <= times["a100", ranks]
    assert all(bounds[place] <= times[place] for place in times)


def test_lengths_of_replies_and_where_they_are_from(simulate: Any, folder: Path) -> None:
    def steps(*more: str) -> dict[str, dict[str, Any]]:
        ran = simulate(*more, *QUICK, "--format", "json")
        assert ran.returncode == 0, ran.stderr
        return {step["step"]: step for step in json.loads(ran.stdout)["optimized"]["steps"]}

    assert {name: (step["length"], step["source"]) for name, step in steps().items()} == {
        "answer": (60.0, "declared"), "kind": (None, "type"), "letter": (60.0, "declared")
    }  # fmt: skip
    one = steps("--output-tokens", "letter=20")
    assert (one["letter"]["length"], one["letter"]["source"], one["answer"]["source"]) == (20.0, "given", "declared")
    assert 10 <= one["letter"]["generated"] / one["letter"]["calls"] <= 30
    both = steps("--output-tokens", "90")
    assert both["answer"]["length"] == both["letter"]["length"] == 90.0
    assert both["answer"]["generated"] > 1.1 * one["answer"]["generated"]
    # Earlier runs, on whatever engine: 36 replies of 7 tokens each.
    (folder / "replies.toml").write_text(
        '[[rule]]\nreply = "a b c d e f g"\n[[rule]]\nstep = "kind"\n', encoding="utf-8"
    )
    more = [{**row, "question": f"{row['question']} {at}"} for row in ROWS for at in range(2)]
    (folder / "more.jsonl").write_text(jsonl(more), encoding="utf-8")
    workflow = helix.load(folder / "letters.helix")
    workflow.run(str(folder / "more.jsonl"), engine="scripted", store=folder / ".helix")
    known = steps()
    assert known["answer"]["source"] == known["letter"]["source"] == "profile"
    assert known["answer"]["length"] < 60


def test_a_model_by_its_configuration_and_an_estimate(simulate: Any, folder: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256,
        "tie_word_embeddings": True, "max_position_embeddings": 4096,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    ran = simulate(*QUICK, "--gpu", "l4", "--tp", "2", model="config.json")
    assert ran.returncode == 0, ran.stderr
    assert "simulated on 2 x l4 (tp 2)" in ran.stdout
    assert "times: estimate:l4x2/" in ran.stdout
    assert "times are estimated from data sheets" in " ".join(ran.stdout.split())


def test_gpus_that_are_too_small_are_rows_of_the_table(simulate: Any) -> None:
    ran = simulate("--no-plain", "--what-if-ranks", "1", "--what-if-gpus", "a10,h200", model="qwen3-32b")
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"\na10 +1 +1 +qwen3-32b leaves no room for a KV cache\n", ran.stdout)
    assert re.search(r"\nh200 +1 +1 +[\d.]+ ", ran.stdout)


def test_settings_of_the_server(simulate: Any) -> None:
    def deployment(*more: str) -> dict[str, Any]:
        ran = simulate(*QUICK, "--format", "json", *more)
        assert ran.returncode == 0, ran.stderr
        return dict(json.loads(ran.stdout)["optimized"]["deployment"])

    assert deployment()["policy"] == "lpm"
    given = deployment(
        "--server", "policy=fcfs", "--server", "page=16", "--kv-tokens", "5000", "--server", "max_running=8"
    )
    assert (given["policy"], given["kv_tokens"], given["max_running"]) == ("fcfs", 5000, 8)
    assert given["settings"] == {"policy": "fcfs", "page": 16, "max_running": 8, "kv_tokens": 5000}


def test_a_small_cache_shows(simulate: Any) -> None:
    data = json.loads(simulate(*QUICK, "--format", "json", "--kv-tokens", "800", "--policy", "lpm").stdout)["optimized"]
    assert data["tokens"]["evicted"] > 0
    assert data["peak_locked"] >= 0.8
    assert [phase["by"] for phase in data["phases"]] == ["kv"] * 3
    assert data["bounds"]["kv_area"] > 0


def test_rows_from_standard_input(simulate: Any, folder: Path) -> None:
    more = ("--format", "json", "--what-if-ranks", "2", "--what-if-gpus", "h100", "--no-plain")
    arguments = ("simulate", "letters.helix", "-m", "llama-3.1-8b", "-i", "-", *more)
    piped = command(*arguments, cwd=folder, input=jsonl(ROWS))
    read = simulate(*more)
    assert piped.returncode == 0, piped.stderr
    first, second = json.loads(piped.stdout), json.loads(read.stdout)
    assert first["table"] == "standard input"
    assert first["optimized"]["log"] == second["optimized"]["log"]
    # Every trial has read the rows.
    assert [case["simulated"]["log"] for case in first["what_if"]] == [
        case["simulated"]["log"] for case in second["what_if"]
    ]


def test_rows_that_cannot_be_run_are_told(simulate: Any, folder: Path) -> None:
    long = {"policy": "p", "question": "long " * 9000}
    (folder / "rows.jsonl").write_text(jsonl([*ROWS, long]), encoding="utf-8")
    ran = simulate(*QUICK, "--kv-tokens", "4000")
    assert ran.returncode == 3
    text = " ".join(ran.stdout.split())
    assert "note: 1 row failed; the first: row 18," in text
    assert "the model has 3998" in text


def test_nothing_is_kept_and_nothing_is_called(simulate: Any, folder: Path) -> None:
    before = sorted(folder.iterdir())
    assert simulate(*QUICK).returncode == 0
    assert sorted(folder.iterdir()) == before


def test_a_workflow_without_inputs_or_without_llm_steps(folder: Path, monkeypatch: Any, capfd: Any) -> None:
    (folder / "one.helix").write_text('workflow one()\na = llm { user "Say hello." }\noutput a\n', encoding="utf-8")
    (folder / "none.helix").write_text("workflow none(a: text)\nb = upper(a)\noutput b\n", encoding="utf-8")
    (folder / "few.jsonl").write_text('{"a": "x"}\n', encoding="utf-8")
    one = inside("simulate", "one.helix", "-m", "qwen3-8b", cwd=folder, monkeypatch=monkeypatch, capfd=capfd)
    assert one.returncode == 0, one.stderr
    assert "one: 1 row of no table simulated on h100, qwen3-8b" in one.stdout
    none = inside(
        "simulate", "none.helix", "-i", "few.jsonl", "-m", "qwen3-8b", "-o", "none.html", cwd=folder,
        monkeypatch=monkeypatch, capfd=capfd,
    )  # fmt: skip
    assert none.returncode == 0, none.stderr
    assert "<svg" not in (folder / "none.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "h10"], "unknown GPU `h10`; did you mean `h100`?"),
        (["--gpu", "h100x2", "--ranks", "4"], "two numbers of ranks: 4 and, in `h100x2`, 2"),
        (["--model", "llama-3.1-9b"], "no shape of model `llama-3.1-9b`; did you mean `llama-3.1-8b`?"),
        (["--cost", "linaer"], "no cost model `linaer`; did you mean `linear`?"),
        (["--cost", "absent.json"], "absent.json"),
        (["--cost", "aiconfigurator"], "helix-workflows[aiconfigurator]"),
        (["--server", "polcy=lpm"], "no setting `polcy` of a simulated engine; did you mean `policy`?"),
        (["--server", "policy"], "--server takes name=value, found `policy`"),
        (["--server", "ranks=2"], "the setting `ranks` of the engine has an option of its own"),
        (["--server", "page=x"], "the setting `page` of a simulated engine is a number, found `x`"),
        (["--server", "pd=1:1"], "the setting `pd` of the engine has an option of its own"),
        (["--kv-tokens", "7"], "kv_tokens must be at least 8 pages"),
        (["--policy", "helx"], "unknown policy `helx`; did you mean `helix`?"),
        (["--output-tokens", "many"], "--output-tokens takes whole numbers, found `many`"),
        (["--output-tokens", "0"], "output tokens are 1 or more, found 0"),
        (["--output-tokens", "leter=9"], "there is no llm step `leter`"),
        (["--output-tokens", "9", "--output-tokens", "letter=9"], "takes one number for all steps, or STEP=N for some"),
        (["--price", "cheap"], "--price takes numbers, found `cheap`"),
        (["--price", "-1"], "the price of an hour of h100 is 0 or more, found -1"),
        (["--price", "nan"], "the price of an hour of h100 is 0 or more, found nan"),
        (["--price", "h1=2"], "unknown GPU `h1`"),
        (["--what-if-ranks", "1,x"], "--what-if-ranks takes whole numbers, found `x`"),
        (["--what-if-ranks", "0"], "what-if ranks are 1 or more, found 0"),
        (["--what-if-gpus", "v100"], "unknown GPU `v100`"),
        (["--output", "page.pdf"], "tells no format by its suffix; add --format text, json or html"),
        (["--output", "no/page.html"], "there is no folder no"),
        (["--output", "."], "--format"),
        (["--store", "absent"], "absent holds no results of earlier runs"),
        (["--rules", "no_such_rule"], "no_such_rule"),
        (["--set", "tone"], "--set takes name=value"),
        (["--tp", "0"], "Invalid value for '--tp'"),
        (["--input", "absent.jsonl"], "there is no such file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_once_and_nothing_is_done(
    arguments: list[str], message: str, simulate: Any, folder: Path
) -> None:
    before = sorted(folder.iterdir())
    ran = simulate(*arguments)
    assert ran.returncode == 2, ran.stdout
    assert message in ran.stderr
    assert ran.stderr.startswith(("error: ", "Usage: "))
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ""
    assert sorted(folder.iterdir()) == before


def test_what_is_missing_is_said(simulate: Any, folder: Path, monkeypatch: Any, capfd: Any) -> None:
    assert "no rows were given" in simulate(source=None).stderr
    missing = simulate(model=None)
    assert missing.returncode == 2
    assert "which model shall be simulated? the workflow names none; --model takes a name" in missing.stderr
    nothing = inside("simulate", cwd=folder, monkeypatch=monkeypatch, capfd=capfd)
    assert nothing.returncode == 2
    assert "which workflow shall be simulated?" in nothing.stderr


def test_the_model_that_the_workflow_names(folder: Path, monkeypatch: Any, capfd: Any) -> None:
    named = TEXT.replace("temperature: 0", 'name: "Qwen/Qwen3-8B"\n  temperature: 0')
    (folder / "letters.helix").write_text(named, encoding="utf-8")
    ran = inside(
        "simulate", "letters.helix", "-i", "rows.jsonl", *QUICK, cwd=folder, monkeypatch=monkeypatch, capfd=capfd
    )
    assert ran.returncode == 0, ran.stderr
    assert "simulated on h100, qwen3-8b" in ran.stdout
    two = named + ""
    two = two.replace("model main {", 'model other { name: "llama-3.1-8b" }\n\nmodel main {', 1)
    two = two.replace("kind = llm main -> choice", "kind = llm other -> choice")
    (folder / "letters.helix").write_text(two, encoding="utf-8")
    arguments = ("simulate", "letters.helix", "-i", "rows.jsonl", *QUICK)
    both = inside(*arguments, cwd=folder, monkeypatch=monkeypatch, capfd=capfd)
    assert both.returncode == 2
    assert "names several" in both.stderr
    chosen = inside(*arguments, "-m", "qwen3-8b", cwd=folder, monkeypatch=monkeypatch, capfd=capfd)
    assert chosen.returncode == 0, chosen.stderr
    assert "are all simulated as qwen3-8b" in " ".join(chosen.stdout.split())


def test_from_python(folder: Path) -> None:
    workflow = helix.load(folder / "letters.helix")
    made = workflow.simulate(iter(ROWS), model="llama-3.1-8b", gpu="h100", ranks=2, what_if_ranks=[1], price=2)
    assert made.table == "the table"
    assert made.optimized.calls == 54
    assert made.money(made.optimized) == pytest.approx(2 * made.optimized.gpu_hours)
    assert made.text() == str(made)
    assert "<svg" in made._repr_html_()
    again = workflow.simulate(ROWS, model="llama-3.1-8b", gpu="h100", ranks=2, what_if_ranks=[], plain=False)
    assert again.optimized.digest == made.optimized.digest
    assert (again.plain, again.cases) == (None, ())
    with pytest.raises(OptionError, match="no setting `polcy`"):
        workflow.simulate(ROWS, model="llama-3.1-8b", server={"polcy": 3})
    run = workflow.run(ROWS, engine="sim:h100x2/llama-3.1-8b?policy=lpm&seed=0")
    # A run on the simulated engine differs in the lengths of replies only.
    assert len(run.rows) == made.optimized.rows


def test_progress_of_long_simulations(folder: Path, monkeypatch: Any, capfd: Any) -> None:
    from helix.simulating import trial

    monkeypatch.setattr(trial, "LINE_EVERY", 0.0)
    arguments = ("simulate", "letters.helix", "-i", "rows.jsonl", "-m", "llama-3.1-8b", "--what-if-gpus", "h100")
    ran = inside(*arguments, cwd=folder, monkeypatch=monkeypatch, capfd=capfd)
    assert re.search(r"optimized plan on h100, llama-3.1-8b: \d+ of 18 rows, \d+ s simulated", ran.stderr)
    assert "plain plan on h100" in ran.stderr
    assert "optimized plan on 8 x h100" in ran.stderr
    quiet = inside(*arguments, "-q", cwd=folder, monkeypatch=monkeypatch, capfd=capfd)
    assert (quiet.stderr, lines(jsonl([]))) == ("", [])
    assert quiet.stdout == ran.stdout


def test_a_reader_that_goes_away(folder: Path) -> None:
    arguments = ("simulate", "letters.helix", "-i", "rows.jsonl", "-m", "llama-3.1-8b", *QUICK)
    from running import arguments as words
    from running import environment

    done = subprocess.run(
        ["bash", "-c", '"$@" | head -c 10 >/dev/null', "_", *words(*arguments)], cwd=folder, env=environment(None),
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr


TOOLS = """
workflow orders(customer: text)

tool find(customer: text) -> list[{ id: int, total: float }] from python "shop:find" effects write, cost 2s
tool sales(customer: text) -> table from sql "sqlite:absent.sqlite" effects read, cost 1s,
  query "SELECT * FROM sales WHERE customer = :customer"

model m { max_tokens: 20 }

found = find(customer)
sold = sales(customer)
reply = llm m { user "{{ customer }}: {{ found }} {{ sold }}" }

output reply
"""


def test_tools_are_made_up_and_take_their_time(folder: Path, monkeypatch: Any, capfd: Any) -> None:
    (folder / "shop.py").write_text(
        "def find(customer: str) -> list:\n    open('called', 'w')\n    raise SystemExit('called')\n", encoding="utf-8"
    )
    (folder / "orders.helix").write_text(TOOLS, encoding="utf-8")
    (folder / "some.jsonl").write_text(jsonl([{"customer": f"c{at}"} for at in range(20)]), encoding="utf-8")
    ran = inside(
        "simulate", "orders.helix", "-i", "some.jsonl", "-m", "qwen3-8b", "--format", "json", "--no-what-if",
        cwd=folder, monkeypatch=monkeypatch, capfd=capfd,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    data = json.loads(ran.stdout)
    made = data["optimized"]
    assert made["calls"]["tools"] == 40
    # 20 calls of 2 s and 20 of 1 s, eight at once in their lane, and then one of the model.
    assert made["bounds"]["tools"] == pytest.approx(60 / 8)
    assert made["bounds"]["critical_path"] > 2
    assert made["bounds"]["binder"] == "tools"
    assert 60 / 8 <= made["seconds"]["makespan"] < 12
    assert any("tools are simulated" in note for note in data["notes"])
    assert not (folder / "called").exists()
    assert not (folder / "absent.sqlite").exists()


def test_a_workflow_in_python(folder: Path, monkeypatch: Any, capfd: Any) -> None:
    (folder / "flow.py").write_text(
        "import helix as hx\n\nmain = hx.model('qwen3-8b', max_tokens=40)\n\n\n"
        "@hx.workflow\ndef two(question: str):\n    first = main(user=question)\n"
        "    return hx.output(second=main(user=f'{question} {first}'))\n",
        encoding="utf-8",
    )
    ran = inside(
        "simulate", "flow.py:two", "-i", "rows.jsonl", *QUICK, cwd=folder, monkeypatch=monkeypatch, capfd=capfd
    )
    assert ran.returncode == 0, ran.stderr
    assert "two: 18 rows of rows.jsonl simulated on h100, qwen3-8b" in ran.stdout
