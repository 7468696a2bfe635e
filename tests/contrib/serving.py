"""A real web server for an application, in the event loop of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

__all__ = ["served"]


@asynccontextmanager
async def served(app: Any) -> AsyncGenerator[str, None]:
    """The address of a server that runs the application, which has started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, ws="none", lifespan="on", log_config=None, access_log=False)
        config.timeout_keep_alive = 3600  # on a busy machine it would close a connection that is just used again
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve([listener]))
        while not (server.started or serving.done()):  # noqa: ASYNC110 - uvicorn sets no event
            await asyncio.sleep(0.001)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
