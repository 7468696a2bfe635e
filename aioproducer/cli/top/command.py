"""``aioproducer top``: shows the status page of a service in a terminal."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Final, TypeAlias, cast
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from aioproducer.cli.extras import is_installed
from aioproducer.cli.verb import ExitCode, Trouble, Verb

__all__ = ["VERB"]

_TIMEOUT_S: Final = 5.0
_LARGEST: Final = 1 << 26

#: Shows one reading: the content of ``stats.json``, or why there is none.
_Show: TypeAlias = Callable[["Mapping[str, Any] | str"], object]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Example: aioproducer top http://localhost:8000/kafka. Ctrl-C ends it. Exit codes: 0, or with --once 1 if a "
        "producer is not ready; 2 if the page cannot be read at first."
    )
    parser.add_argument("url", metavar="URL", help="the address of aioproducer.contrib.asgi.status_app in your service")
    parser.add_argument("--once", action="store_true", help="print the status once, and exit")
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="default: 1")
    parser.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        metavar="NAME: VALUE",
        help="a header of the requests, such as 'Authorization: Bearer ...'; may be repeated",
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("must be 0.1 to 3600 seconds")
    return seconds


def _run(options: argparse.Namespace) -> ExitCode:
    request = _request(options.url, options.header)
    first = _read(request)
    if isinstance(first, str):
        raise Trouble(first)
    if options.once:
        from aioproducer.cli.top.view import lines

        print("\n".join(lines(first)))
        return ExitCode.OK if all(each["ready"] for each in first["producers"]) else ExitCode.BAD
    try:
        if sys.stdout.isatty() and is_installed("rich"):
            _show_screen(request, options.interval, first)
        else:
            _show_lines(request, options.interval, first)
    except KeyboardInterrupt:  # the usual end
        pass
    return ExitCode.OK


def _request(url: str, headers: list[str]) -> Request:
    if urlsplit(url).scheme not in ("http", "https"):
        raise Trouble(f"Invalid URL {url!r}: it must begin with http:// or https://.")
    page = url.split("?")[0].removesuffix("/stats.json").rstrip("/")
    request = Request(f"{page}/stats.json", headers={"Accept": "application/json"})
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip() or not header.isprintable():
            raise Trouble(f"Invalid header {header!r}: it must be 'NAME: VALUE'.")
        request.add_header(name.strip(), value.strip())
    return request


def _read(request: Request) -> Mapping[str, Any] | str:
    """The status, or the reason why there is none."""
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as response:
            found: Any = json.loads(response.read(_LARGEST))
    except HTTPError as error:
        return f"{request.full_url} answered {error.code} {error.reason}."
    except (OSError, HTTPException) as error:
        return f"{request.full_url} cannot be read: {error}."
    except ValueError:
        found = None
    if not isinstance(found, dict) or "producers" not in found:
        return f"{request.full_url} is not the status of producers. Is it the address of a status_app?"
    return cast("Mapping[str, Any]", found)


def _show_lines(request: Request, interval: float, first: Mapping[str, Any]) -> None:
    from aioproducer.cli.top.view import lines

    def show(found: Mapping[str, Any] | str) -> None:
        shown = [found] if isinstance(found, str) else lines(found)
        print("\n".join([time.strftime("%H:%M:%S"), *shown, ""]), flush=True)

    _repeat(request, interval, first, show)


def _show_screen(request: Request, interval: float, first: Mapping[str, Any]) -> None:
    from rich.live import Live

    from aioproducer.cli.top.screen import screen

    with Live(screen(first, None), screen=True, auto_refresh=False) as live:
        last = first

        def show(found: Mapping[str, Any] | str) -> None:
            nonlocal last
            problem = found if isinstance(found, str) else None
            last = last if isinstance(found, str) else found
            live.update(screen(last, problem), refresh=True)

        _repeat(request, interval, first, show)


def _repeat(request: Request, interval: float, first: Mapping[str, Any], show: _Show) -> None:
    show(first)
    while True:
        time.sleep(interval)
        show(_read(request))


VERB: Final = Verb("top", "Show the status page of a service in a terminal.", _configure, _run)
