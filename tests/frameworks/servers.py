"""The same routes in a framework of Python: servers.py FRAMEWORK PORT

A handler answers with its name, its parameter, and the route that the proxy says it took (x-route).
"""

import sys
from urllib.parse import quote

ROUTES = [
    ("login", "/login"),
    ("admin", "/admin/users"),
    ("me", "/users/@me"),
    ("cancel", "/v1/jobs:cancel"),
    ("user", "/users/{id}"),
    ("report", "/health.json"),
    ("health", "/health"),
]
METHODS = ["GET", "POST"]


def reply(name, value, route):
    """The body of an answer."""
    return f"{name} {quote(value, safe='') if value else '-'} {route or '-'}\n"


def fastapi():
    """FastAPI, and so Starlette, by uvicorn."""
    from fastapi import FastAPI, Request, Response

    app = FastAPI()

    def add(name, path):
        async def handler(request: Request):
            body = reply(name, request.path_params.get("id"), request.headers.get("x-route"))
            return Response(body, media_type="text/plain")

        app.api_route(path, methods=METHODS)(handler)

    for name, path in ROUTES:
        add(name, path)
    return lambda port: serve_asgi(app, port)


def flask():
    """Flask, and so Werkzeug."""
    from flask import Flask, request

    app = Flask(__name__)
    for name, path in ROUTES:
        def handler(name=name, id=None):
            return reply(name, id, request.headers.get("x-route")), {"Content-Type": "text/plain"}

        path = path.replace("{id}", "<id>")
        app.add_url_rule(path, name, handler, methods=METHODS)
    return lambda port: serve_wsgi(app, port)


def django():
    """Django, by its WSGI application."""
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path as route

    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["*"],
        MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    )

    def view(name):
        def handler(request, id=None):
            body = reply(name, id, request.headers.get("x-route"))
            return HttpResponse(body, content_type="text/plain")

        return handler

    global urlpatterns
    urlpatterns = [
        route(path[1:].replace("{id}", "<str:id>"), view(name)) for name, path in ROUTES
    ]
    app = get_wsgi_application()
    return lambda port: serve_wsgi(app, port)


def aiohttp():
    """aiohttp, by its own server."""
    from aiohttp import web

    app = web.Application()
    for name, path in ROUTES:
        async def handler(request, name=name):
            body = reply(name, request.match_info.get("id"), request.headers.get("x-route"))
            return web.Response(text=body)

        app.router.add_route("*", path, handler)

    return lambda port: web.run_app(app, host="127.0.0.1", port=port, print=None)


def serve_asgi(app, port):
    """Serves until the process ends."""
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", lifespan="off")


def serve_wsgi(app, port):
    """Serves until the process ends."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *_):
            pass

    make_server("127.0.0.1", port, app, threaded=True, request_handler=Handler).serve_forever()


FRAMEWORKS = {"fastapi": fastapi, "flask": flask, "django": django, "aiohttp": aiohttp}

if __name__ == "__main__":
    FRAMEWORKS[sys.argv[1]]()(int(sys.argv[2]))
