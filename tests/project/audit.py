"""Asks whether a weakness is known of any installed package, by pip-audit: `python tests/project/audit.py`.

Exit code 1 where one is known that a newer version mends which everything installed agrees with; what cannot be raised
is said. Where the service that knows weaknesses cannot be asked, that is said as loudly, and the exit code is 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import distributions
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

COMMAND = (sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--skip-editable")
OURS = "helix-workflows"
# They come with the virtual environment of whoever installs, and Helix stands on none of them.
INSTALLERS = ("pip", "setuptools", "wheel")
# What each package installed wants of others: its name and a requirement.
Wanted = Iterable[tuple[str, Requirement]]


def ask() -> tuple[Mapping[str, Any] | None, str]:
    """What pip-audit found, and what it said where it found out nothing."""
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False, timeout=600)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return None, (done.stderr.strip().splitlines() or [f"pip-audit ended with code {done.returncode}"])[-1]
    return found, ""


def wanted() -> Iterable[tuple[str, Requirement]]:
    """What the packages that are installed here want of one another."""
    for package in distributions():
        for text in package.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                yield package.metadata["Name"], requirement


def holders(name: str, versions: Iterable[str], wants: Wanted) -> list[str]:
    """Who holds a package back from all of some versions: requirements; empty where one of them suits everybody."""
    own = [(by, each) for by, each in wants if canonicalize_name(each.name) == canonicalize_name(name)]
    least: list[str] | None = None
    for version in versions:
        against = [f"{by} wants {each}" for by, each in own if not each.specifier.contains(version, prereleases=True)]
        if not against:
            return []
        least = against if least is None or len(against) < len(least) else least
    return least or []


def audit(found: Mapping[str, Any] | None, said: str, wants: Wanted, tell: Callable[[str], None]) -> int:
    """Says what was found; the exit code."""
    packages = [each for each in (found or {}).get("dependencies", ()) if canonicalize_name(each["name"]) != OURS]
    known = [each for each in packages if "vulns" in each]
    if not known:
        why = said or f"it knows none of the {len(packages)} packages installed"
        tell(f"NOT AUDITED: no service of known weaknesses can be asked here: {why}")
        return 0
    wants = list(wants)
    bad = 0
    for package in known:
        name, version = package["name"], package["version"]
        for weakness in package["vulns"]:
            mended = weakness["fix_versions"]
            held = holders(name, mended, wants)
            what = f"{name} {version}: {weakness['id']}"
            if not mended:
                tell(f"{what}: no version mends it yet")
            elif name in INSTALLERS:
                tell(f"{what}: an installer's, mended in {', '.join(mended)}")
            elif held:
                tell(f"{what}: mended in {', '.join(mended)}, but {'; '.join(held)}")
            else:
                tell(f"WEAK {what}: raise it to {', '.join(mended)}")
                bad += 1
    unknown = len(packages) - len(known)
    tell(f"audited {len(known)} packages, {unknown} not known to the service: {bad} to raise")
    return 1 if bad else 0


def main() -> int:
    """The command."""
    return audit(*ask(), wanted(), print)


if __name__ == "__main__":
    sys.exit(main())
