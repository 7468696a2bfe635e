"""Starts and closes producers with a web service or a worker, in the way of each framework.

`lifespan` serves FastAPI, Starlette and Quart; `with_producers` serves Django and every other ASGI application. The modules
``litestar``, ``aiohttp``, ``celery`` and ``gunicorn`` of this package serve those. A framework is imported only by the
module that is named after it.
"""

from aioproducer.contrib.lifespan.asgi import with_producers
from aioproducer.contrib.lifespan.running import lifespan

__all__ = ["lifespan", "with_producers"]
