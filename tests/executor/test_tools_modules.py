"""Modules of tools: only from beside the workflow, loaded once, with their own imports and classes."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
from running import run

from helix.errors import OptionError
from helix.executor.tools.modules import load_function, load_module, look_up_function


def test_a_function_is_found_beside_the_workflow(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("def price(x):\n    return x * 2\n")
    assert load_function("shop:price", [tmp_path])(4) == 8


def test_a_package_and_a_module_in_a_folder_are_found(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("def top():\n    return 'top'\n")
    (tmp_path / "pack" / "inner.py").write_text("class Box:\n    @staticmethod\n    def f():\n        return 'inner'\n")
    assert load_function("pack:top", [tmp_path])() == "top"
    assert load_function("pack.inner:Box.f", [tmp_path])() == "inner"


def test_modules_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text(f"def f():\n    return '{name}'\n")
    found = [load_function("same:f", [tmp_path / name])() for name in ("one", "two", "one")]
    assert found == ["one", "two", "one"]


def test_a_module_is_loaded_once(tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text("state = []\ndef f():\n    state.append(1)\n    return len(state)\n")
    assert [load_function("once:f", [tmp_path])() for _ in range(3)] == [1, 2, 3]


def test_an_installed_module_is_not_a_tool_and_a_file_of_its_name_is(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="python module `os` was not found in"):
        load_function("os:getcwd", [tmp_path])
    (tmp_path / "json.py").write_text("def dumps(x):\n    return 'mine'\n")
    assert load_function("json:dumps", [tmp_path])(1) == "mine"
    import json

    assert sys.modules["json"] is json
    assert json.dumps(1) == "1"


def test_a_file_never_takes_the_place_of_a_package_that_is_loaded_later(tmp_path: Path) -> None:
    (tmp_path / "colorsys.py").write_text("def f():\n    return 'mine'\n")
    sys.modules.pop("colorsys", None)
    assert load_function("colorsys:f", [tmp_path])() == "mine"
    import colorsys

    assert hasattr(colorsys, "rgb_to_hsv")


@pytest.mark.parametrize("target", ["../outside:f", "outside:f", "linked:f"])
def test_nothing_outside_the_folder_is_loaded(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside.py").write_text("def f():\n    return 'reached'\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "linked.py").symlink_to(tmp_path / "outside.py")
    with pytest.raises(OptionError, match="was not found in"):
        load_function(target, [inside])


def test_a_module_may_import_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "helper_beside.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "uses_helper.py").write_text("from helper_beside import double\ndef f(x):\n    return double(x)\n")
    path = list(sys.path)
    assert load_function("uses_helper:f", [tmp_path])(4) == 8
    assert sys.path == path


def test_classes_with_late_annotations_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(
        "from __future__ import annotations\nimport dataclasses, typing\n@dataclasses.dataclass\nclass P:\n"
        "    n: int\n    kind: typing.ClassVar[str] = 'p'\ndef f(n):\n    return dataclasses.asdict(P(n))\n"
    )
    assert load_function("late:f", [tmp_path])(4) == {"n": 4}
    assert "late" not in sys.modules


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "failed to load: ZeroDivisionError: division by zero (broken.py:1)"),
        ("import not_there", "failed to load: ModuleNotFoundError: No module named 'not_there' (broken.py:1)"),
        ("\nraise SystemExit(3)", "failed to load: SystemExit: 3 (broken.py:2)"),
        ("import json\ndef f(:", "failed to load: SyntaxError: invalid syntax (broken.py:2)"),
        ("import json\n\njson.loads('{')", "line 1 column 2 (char 1) (broken.py:3)"),
    ],
)
def test_a_module_that_fails_to_load_is_one_message(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "broken.py").write_text(code)
    with pytest.raises(OptionError) as caught:
        load_function("broken:f", [tmp_path])
    assert message in str(caught.value)
    assert "broken" not in sys.modules


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    1 / 0\n",
        "1 / 0\nif True:\n    async def f():\n        pass\n",
        "from json import loads as f\n",
        "f, g = len, max\n",
        "from json import *\n",
        "def __getattr__(name):\n    return len\n",
        "globals()['f'] = len\n",
        "class f:\n    pass\n",
    ],
)
def test_a_function_is_looked_up_without_running_its_module(tmp_path: Path, code: str) -> None:
    (tmp_path / "tools.py").write_text(code)
    look_up_function("tools:f", [tmp_path])
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def fetch():\n    pass\n",
            "`tools.py` has no function `fetch_`; did you mean `fetch`? functions there: fetch",
        ),
        ("def fetch_(:\n", "python module `tools` failed to load: SyntaxError: invalid syntax (tools.py:1)"),
        ("def g():\n    def fetch_():\n        pass\n", "`tools.py` has no function `fetch_`; functions there: g"),
    ],
)
def test_what_is_not_there_is_told_without_running_the_module(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "tools.py").write_text(code)
    with pytest.raises(OptionError) as caught:
        look_up_function("tools:fetch_", [tmp_path])
    assert str(caught.value) == message
    with pytest.raises(OptionError, match="did you mean `tools`"):
        look_up_function("toools:f", [tmp_path])


def test_near_names_are_offered(tmp_path: Path) -> None:
    (tmp_path / "shop_tools.py").write_text("def find_orders():\n    pass\n")
    with pytest.raises(OptionError, match="did you mean `shop_tools`"):
        load_function("shop_tool:f", [tmp_path])
    with pytest.raises(OptionError, match=r"`shop_tools\.py` has no function `find_order`; did you mean `find_orders`"):
        load_function("shop_tools:find_order", [tmp_path])


def test_a_whole_file_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("value = 4\n")
    assert load_module(tmp_path / "file.py").value == 4


def test_a_workflow_without_a_folder_has_no_python_tools() -> None:
    text = 'workflow t(a: text)\ntool f(x: text) -> text from python "os:getenv"   effects read\ny = f(a)\noutput y'
    with pytest.raises(OptionError, match="python module `os` was not found in no folder"):
        run(text, [{"a": "HOME"}])


def test_a_changed_module_is_loaded_again_and_its_source_is_of_what_was_loaded(tmp_path: Path) -> None:
    """In the same second and with the same size, which a compiled file would be taken to be up to date at."""
    path = tmp_path / "shop.py"
    path.write_text("BASE = 3\n\ndef f():\n    return BASE + 1\n")
    first = load_function("shop:f", [tmp_path])
    assert first() == 4
    path.write_text("BASE = 5\n\ndef f():\n    return BASE + 2\n")
    assert inspect.getsource(first) == "def f():\n    return BASE + 1\n"
    second = load_function("shop:f", [tmp_path])
    assert second() == 7
    assert inspect.getsource(second) == "def f():\n    return BASE + 2\n"
    assert first() == 4
