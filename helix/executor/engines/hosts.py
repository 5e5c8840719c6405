"""Names of hosts in addresses."""

from __future__ import annotations

import ipaddress


def is_local(host: str) -> bool:
    """Whether a host is this machine, so that no proxy stands before it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
