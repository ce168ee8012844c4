"""A real S3 server (moto's) on 127.0.0.1, which fails one request in so many: refused, broken, or cut off in the middle of an answer."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Any
from urllib.request import Request, urlopen

import pytest

BUCKET = "bucket"


class Unreliable:
    """A WSGI application around another that fails every EVERYth request, each time in another way; counts what it was asked."""

    def __init__(self, inside: Callable[..., Any]) -> None:
        self.inside, self.every, self.down = inside, 0, False
        self.asked: list[str] = []
        self._lock = Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        with self._lock:
            self.asked.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
            number = len(self.asked)
        failing = self.every and number % self.every == 0
        way = number // self.every % 3 if failing else 0
        if self.down or (failing and way < 2):
            status = ("503 Slow Down", "500 Internal Server Error")[way]
            length = int(environ.get("CONTENT_LENGTH") or 0)
            environ["wsgi.input"].read(length)
            start(status, [("Content-Length", "0")])
            return [b""]
        answer = self.inside(environ, start)
        return self._cut(b"".join(answer)) if failing else answer

    def _cut(self, body: bytes) -> Iterator[bytes]:
        yield body[: len(body) // 2]
        raise ConnectionAbortedError


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Unreliable]:
    """With an empty bucket; AWS_ENDPOINT_URL and keys are set for this process and those it starts."""
    pytest.importorskip("s3fs", reason="the extra s3 isn't installed")
    pytest.importorskip("moto", reason="the extra test isn't installed: no S3 server")
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = Unreliable(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}"}.items():
        monkeypatch.setenv(name, value)
    try:
        import s3fs

        from saccade import s3

        s3fs.S3FileSystem.clear_instance_cache()
        s3._known.clear(), s3._listed.clear()
        urlopen(Request(f"{os.environ['AWS_ENDPOINT_URL']}/moto-api/reset", method="POST")).close()  # moto keeps objects for the process
        s3._server().mkdir(BUCKET)
        application.asked.clear()
        yield application
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
