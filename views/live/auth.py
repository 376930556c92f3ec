"""Access to the live page: requests must name this machine and know the token, if there is one."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that is bound to `host`.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def own_names(host: str) -> frozenset[str]:
    """Return the names of this machine; none if only itself can reach a server bound to `host`."""
    if is_loopback(host):
        return frozenset()
    return frozenset({host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()})


@dataclass(frozen=True)
class Guard:
    """Decides which requests a server answers.

    A page of another site can let its domain point here (DNS rebinding) and then read the answers.
    So a request must call this machine `localhost`, by a number, or by one of `names`.
    """

    host: str
    port: int
    token: str | None = None
    names: frozenset[str] = frozenset()

    @property
    def cookie(self) -> str:
        return f"hpo_{self.port}"

    def knows(self, header: str | None) -> bool:
        """Return whether a `Host` header names this machine."""
        name = _name(header or "")
        if name == "localhost":
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return address.is_loopback or not is_loopback(self.host)

    def takes(self, token: str | None) -> bool:
        """Return whether this is the token, in a time that does not depend on it."""
        if self.token is None:
            return True
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def admits(self, cookies: str | None) -> bool:
        """Return whether a `Cookie` header holds the token."""
        if self.token is None:
            return True
        try:
            found = SimpleCookie(cookies or "").get(self.cookie)
        except CookieError:
            return False
        return found is not None and self.takes(found.value)

    def set_cookie(self) -> str:
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Lax"


def _name(header: str) -> str:
    """Return the host of a `Host` header without its port.

    >>> _name("localhost:8765"), _name("[::1]:8765"), _name("Example.org")
    ('localhost', '::1', 'example.org')
    """
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
