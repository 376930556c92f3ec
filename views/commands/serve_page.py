"""`hpo serve`: all studies of a folder as a live page in a browser."""

from __future__ import annotations

import errno
import secrets
import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path

from ...errors import ConfigError, StoreError
from ...store.journal import JOURNAL_NAME
from ..documents import print_json
from ..live.guard import is_loopback
from ..live.library import Library
from ..live.server import LiveServer
from ..visible import echo

__all__ = ["do_serve"]

_PORT, _TRIES = 8765, 10


def do_serve(args: Namespace) -> int:
    """Serve the live page until Ctrl-C.

    Raises:
        StoreError: there is no such folder, or it is one study.
        ConfigError: the port is taken, or the host is none of this machine.
    """
    root = Path(args.out)
    if (root / JOURNAL_NAME).is_file():
        above = root.resolve().parent
        raise StoreError(f"{root} is one study; give the folder of results: hpo serve {above}")
    if not root.is_dir():
        raise StoreError(f"there is no folder {root}/; start a study with: hpo run study.yaml")
    server = _bound(root, args.host, args.port, args.token)
    import_module("duckdb")  # else the first page would wait for it
    with server:
        if args.json:
            print_json({"url": server.url, "port": server.guard.port})
        else:
            echo(server.url)
        sys.stdout.flush()
        echo(f"serving {root}/, read-only; Ctrl-C ends it", file=sys.stderr)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            echo("", file=sys.stderr)  # below the ^C
    return 0


def _bound(root: Path, host: str, port: int | None, always: bool) -> LiveServer:
    """Return a server that listens, at the first free port where none was asked for."""
    token = secrets.token_urlsafe(24) if always or not is_loopback(host) else None
    ports = [port] if port is not None else [*range(_PORT, _PORT + _TRIES), 0]
    for at in ports:
        try:
            return LiveServer(Library(root), host, at, token)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            told = error.strerror or str(error)
            raise ConfigError(
                f"cannot listen on {host} port {at}: {told}; choose others with --host and --port"
            ) from error
    raise ConfigError(f"no port of {host} is free; choose one with --port")
