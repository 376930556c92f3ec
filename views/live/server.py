"""The server for the live page: GET and HEAD on a few fixed paths, with access control."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from ...errors import HpoError, clause
from ...version import __version__
from ..output import echo
from ..words import on_command_line
from . import pages
from .library import Library
from .study_status import PIECES

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_ALWAYS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_IDLE_SECONDS = 30.0


def is_loopback(host: str) -> bool:
    """Return whether a server bound to `host` can be reached only from this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class RequestGuard:
    """Decides which requests a server answers.

    A page on another site can point its domain here (DNS rebinding) and then read the responses.
    Therefore, a request must address this machine as `localhost`, by IP address, or by one of
    `names`.
    """

    host: str
    port: int
    token: str | None = None
    names: frozenset[str] = frozenset()

    @property
    def cookie(self) -> str:
        return f"hpo_{self.port}"

    def knows(self, header: str | None) -> bool:
        name = _host_name(header or "")
        if name == "localhost":
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return address.is_loopback or not is_loopback(self.host)

    def takes(self, token: str | None) -> bool:
        """Check the token in constant time."""
        if self.token is None:
            return True
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def admits(self, cookies: str | None) -> bool:
        if self.token is None:
            return True
        try:
            found = SimpleCookie(cookies or "").get(self.cookie)
        except CookieError:
            return False
        return found is not None and self.takes(found.value)


def _host_name(header: str) -> str:
    """Return the host in a `Host` header without its port.

    >>> _host_name("localhost:8765"), _host_name("[::1]:8765"), _host_name("Example.org")
    ('localhost', '::1', 'example.org')
    """
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


@dataclass(frozen=True)
class Response:
    body: str
    kind: str = "text/html"
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] | None = None


class LiveServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, library: Library, host: str, port: int, token: str | None = None):
        self.address_family = socket.AF_INET
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)
        self.library = library
        own = frozenset[str]()
        if not is_loopback(host):
            own = frozenset(map(str.lower, (host, socket.gethostname(), socket.getfqdn())))
        self.guard = RequestGuard(host, self.server_port, token, own)
        self.fixed = {
            "/live.css": Response(pages.style(), "text/css"),
            "/live.js": Response(pages.script(), "text/javascript"),
        }

    @property
    def url(self) -> str:
        host, asked = self.guard.host, ""
        if host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        if ":" in host:
            host = f"[{host}]"
        if self.guard.token is not None:
            asked = f"?{urlencode({'token': self.guard.token})}"
        return f"http://{host}:{self.guard.port}/{asked}"

    def server_bind(self) -> None:
        """Bind without looking up this machine's name on the network, unlike HTTPServer."""
        TCPServer.server_bind(self)
        self.server_name = str(self.server_address[0])
        self.server_port = int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the error on one line; a client that disconnects is not an error."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            echo(f"warning: {type(error).__name__}: {error}", file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True  # a body must not wait for the acknowledgement of its header

    def version_string(self) -> str:
        return f"hpo/{__version__}"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because a token must not appear in a log."""

    def do_GET(self) -> None:
        try:
            answer = self._find_answer()
        except HpoError as error:  # the study cannot be read
            answer = _text_answer(on_command_line(error), HTTPStatus.SERVICE_UNAVAILABLE)
        # a bug: the page reports it, and other requests are still served
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            echo(f"warning: {self.path.partition('?')[0][:200]}: {text}", file=sys.stderr)
            answer = _text_answer(text, HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send_answer(answer)

    do_HEAD = do_GET  # `_answer` omits the body

    def send_error(
        self, code: int, message: str | None = None, explain: str | None = None
    ) -> None:
        """Reject other methods, and requests that are not HTTP."""
        status = HTTPStatus(code)
        headers: dict[str, str] = {"Connection": "close"}
        if status in (HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.METHOD_NOT_ALLOWED):
            status = HTTPStatus.METHOD_NOT_ALLOWED
            headers["Allow"] = "GET, HEAD"
        self.close_connection = True
        self._send_answer(_text_answer(status.phrase, status, headers))

    def _send_answer(self, answer: Response) -> None:
        body = answer.body.encode()
        tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        headers = getattr(self, "headers", None) or {}  # missing if the request is not HTTP
        known = headers.get("If-None-Match", "")
        status = answer.status
        fresh = answer.status is HTTPStatus.OK and tag in map(str.strip, known.split(","))
        if fresh:
            status = HTTPStatus.NOT_MODIFIED
        self.send_response(status)
        for name, value in (*_ALWAYS.items(), *(answer.headers or {}).items()):
            self.send_header(name, value)
        if answer.status is HTTPStatus.OK:
            self.send_header("ETag", tag)
        if not fresh:
            self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not fresh and getattr(self, "command", None) != "HEAD":
            self.wfile.write(body)

    def _find_answer(self) -> Response:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # the body of a GET is not read
        try:
            place = urlsplit(self.path)
        except ValueError:  # http://[
            return _text_answer("This address is not valid.", HTTPStatus.BAD_REQUEST)
        assert isinstance(self.server, LiveServer)
        guard = self.server.guard
        if not guard.knows(self.headers.get("Host")):
            text = "This server does not accept that host name; use its address or localhost."
            return _text_answer(text, HTTPStatus.MISDIRECTED_REQUEST)
        asked = parse_qs(place.query)
        if guard.token is not None and "token" in asked and guard.takes(asked["token"][0]):
            rest = urlencode([(k, v) for k, vs in asked.items() if k != "token" for v in vs])
            where = "/" + place.path.lstrip("/\\") + clause("?{}", rest)
            cookie = f"{guard.cookie}={guard.token}; Path=/; HttpOnly; SameSite=Lax"
            return _text_answer(
                "", HTTPStatus.SEE_OTHER, {"Location": where, "Set-Cookie": cookie}
            )
        if not guard.admits(self.headers.get("Cookie")):
            text = "This page needs a token; open the address that hpo serve printed."
            return _text_answer(text, HTTPStatus.FORBIDDEN)
        return _answer_at(self.server, place.path)


def _text_answer(
    text: str, status: HTTPStatus, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(text and f"{text}\n", "text/plain", status, headers)


def _answer_at(server: LiveServer, path: str) -> Response:
    """Return the response for a URL path; study names are looked up, never used as file paths."""
    if path in server.fixed:
        return server.fixed[path]
    if path == "/":
        return Response(pages.list_page(str(server.library.root)))
    words = [unquote(word) for word in path.strip("/").split("/")]
    found = _PLACES.get((words[0], len(words)))
    answer = None
    if found is not None:
        answer = found(server.library, *words[1:])
    if answer is not None:
        return answer
    page = pages.message_page("Not found", f"There is nothing at {path[:200]}.")
    return Response(page, status=HTTPStatus.NOT_FOUND)


def _study_answer(library: Library, name: str) -> Response | None:
    if not library.prepare(name):
        return None
    return Response(pages.study_page(name))


def _part_answer(library: Library, name: str, part: str) -> Response | None:
    made = library.view(name)
    if made is None or part not in dict(PIECES):
        return None
    return Response(made.value.part(part, made.spend))


def _state_answer(library: Library, name: str) -> Response | None:
    made = library.view(name)
    if made is None:
        return None
    data = {"version": made.value.version, "state": made.value.standing.word}
    return Response(json.dumps(data), "application/json")


def _states_answer(library: Library) -> Response:
    lines = library.lines()
    words = {line.word for line in lines}
    state = next((word for word in ("reading", "running") if word in words), "finished")
    states = [
        (line.name, line.word, line.standing and line.standing.head.number) for line in lines
    ]
    version = hashlib.blake2b(json.dumps(states).encode(), digest_size=8).hexdigest()
    return Response(json.dumps({"version": version, "state": state}), "application/json")


_PLACES: dict[tuple[str, int], Callable[..., Response | None]] = {
    ("study", 2): _study_answer,
    ("part", 3): _part_answer,
    ("list-part", 1): lambda library: Response(pages.list_table(library.lines())),
    ("state", 2): _state_answer,
    ("states", 1): _states_answer,
}
