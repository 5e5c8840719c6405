"""The address `sglang://HOST:PORT[,HOST:PORT...][?tenant=NAME&api=chat&tls=on]`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from helix.errors import OptionError, name_help
from helix.executor.engines.hosts import is_local

FORM = "sglang://HOST:PORT[,HOST:PORT...]"
PORT = 30000  # where SGLang listens unless told otherwise
OPTIONS = {"tenant": "a name", "api": "`chat`", "tls": "`on` or `off`"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the servers are. `hosts` are HOST:PORT; `tenant` keeps prefix caches of different users apart; `chat` sends
    every call through the OpenAI-compatible endpoint.
    """

    hosts: tuple[str, ...]
    tenant: str | None = None
    chat: bool = False
    tls: bool = False

    @property
    def name(self) -> str:
        """As a person writes it, without options."""
        return f"sglang://{','.join(self.hosts)}"

    @property
    def bases(self) -> tuple[str, ...]:
        """The addresses of the servers for HTTP."""
        return tuple(f"{'https' if self.tls else 'http'}://{host}" for host in self.hosts)

    @property
    def local(self) -> bool:
        """Whether all servers are on this machine."""
        return all(is_local(urlsplit(base).hostname or "") for base in self.bases)


def parse_address(given: str, tenant: str | None = None) -> Address:
    """The parts of an address; `tenant` is one given beside it. Raises OptionError for what is none."""
    shown = given.rpartition("@")[2].partition("?")[0]
    _, slashes, rest = given.strip().partition("://")
    if not slashes:
        rest = given.strip().partition(":")[2].lstrip("/")
        near = rest.rpartition("@")[2].partition("?")[0]
        hint = f"did you mean `sglang://{near}`?" if near else f"expected {FORM}"
        raise OptionError(f"not an address of SGLang servers: `{shown}`; {hint}")
    places, _, query = rest.partition("?")
    if "@" in places:
        raise OptionError(f"the address `sglang://{shown}` holds a key; give it in HELIX_API_KEY instead")
    hosts = tuple(_host(place.strip(), shown) for place in places.rstrip("/").split(","))
    twice = next((host for number, host in enumerate(hosts) if host in hosts[:number]), None)
    if twice is not None:
        raise OptionError(f"the address `{shown}` names {twice} twice; each server once")
    options = _options(query, shown)
    own = options.get("tenant")
    if own is not None and tenant is not None and own != tenant:
        raise OptionError(f"two tenants for `{shown}`: `{own}` in the address, `{tenant}` beside it; name one")
    return Address(
        hosts=hosts,
        tenant=own if own is not None else tenant,
        chat="api" in options,
        tls=options.get("tls") == "on",
    )


def _host(place: str, shown: str) -> str:
    """HOST:PORT, the port filled in."""
    try:
        parts = urlsplit(f"//{place}")
        fits = bool(parts.hostname) and parts.port != 0 and parts.path in ("", "/") and not any(map(str.isspace, place))
        port = parts.port or PORT
    except ValueError:
        fits = False
    if not fits:
        what = f"`{place}` in it" if place else "an empty place in it"
        tail = " (without a path)" if "/" in place else ""
        raise OptionError(f"not an address of SGLang servers: `{shown}`, for {what}; expected {FORM}{tail}")
    host = parts.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _options(query: str, shown: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in OPTIONS:
            raise OptionError(f"no option `{name}` of `{shown}`; {name_help(name, OPTIONS, 'options')}")
        fits = {"tenant": bool(value.strip()), "api": value == "chat", "tls": value in ("on", "off")}[name]
        if not fits:
            raise OptionError(f"the option `{name}` of `{shown}` is `{value}`; expected {OPTIONS[name]}")
    return options
