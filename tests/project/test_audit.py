"""The look for known weaknesses, with made-up answers of pip-audit: what fails, what is only said."""

from __future__ import annotations

import sys
from typing import Any

import audit
import pytest
from packaging.requirements import Requirement

WANTS = [("a", Requirement("weak<2")), ("b", Requirement("weak>=1")), (audit.OURS, Requirement("other>=1"))]


def audited(found: Any, said: str = "") -> tuple[int, str]:
    told: list[str] = []
    return audit.audit(found, said, WANTS, told.append), "\n".join(told)


def packages(*fixes: list[str]) -> dict[str, Any]:
    """What pip-audit says of one package with a weakness for each list of versions that mend it."""
    vulns = [{"id": f"CVE-{number}", "fix_versions": each} for number, each in enumerate(fixes)]
    return {"dependencies": [{"name": "Weak", "version": "1.0", "vulns": vulns}, {"name": "x", "skip_reason": "none"}]}


def test_a_weakness_that_can_be_mended_fails() -> None:
    code, told = audited(packages(["1.4", "2.1"]))
    assert code == 1
    assert told.splitlines() == [
        "WEAK Weak 1.0: CVE-0: raise it to 1.4, 2.1",
        "audited 1 packages, 1 not known to the service: 1 to raise",
    ]


def test_one_that_cannot_is_said_with_the_reason() -> None:
    code, told = audited(packages(["2.1"], []))
    assert code == 0
    assert "CVE-0: mended in 2.1, but a wants weak<2" in told
    assert "CVE-1: no version mends it yet" in told
    assert audited(packages())[0] == 0


def test_an_installer_of_the_environment_is_said_and_does_not_fail() -> None:
    found = {"dependencies": [{"name": "pip", "version": "23.2", "vulns": [{"id": "CVE-0", "fix_versions": ["23.3"]}]}]}
    code, told = audited(found)
    assert code == 0
    assert "pip 23.2: CVE-0: an installer's, mended in 23.3" in told


def test_a_service_that_cannot_be_asked_is_said_aloud() -> None:
    assert audited(None, "no route") == (
        0,
        "NOT AUDITED: no service of known weaknesses can be asked here: no route",
    )
    # An index that has no list of weaknesses knows no package.
    code, told = audited({"dependencies": [{"name": "x", "skip_reason": "none"}]})
    assert code == 0
    assert told.endswith("it knows none of the 1 packages installed")


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print('{\"dependencies\": []}')", ({"dependencies": []}, "")),
        ("import sys; sys.exit('first\\nlast')", (None, "last")),
        ("import sys; sys.exit(4)", (None, "pip-audit ended with code 4")),
    ],
)
def test_what_the_program_says(program: str, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "COMMAND", (sys.executable, "-c", program))
    assert audit.ask() == expected


def test_what_is_installed_wants_something() -> None:
    wants = {(by, each.name) for by, each in audit.wanted()}
    assert (audit.OURS, "lark") in wants
    # What only an extra wants holds nothing back.
    assert (audit.OURS, "xllamacpp") not in wants
