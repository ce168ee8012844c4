"""SESSION -> PAGES: HTTP and WebSocket. A page asks for every picture, so slow ones get fewer and none holds up another."""

import asyncio
import json
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from saccade.live.session import Session
from saccade.types import InputError

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import HTTPConnection
    from starlette.websockets import WebSocket

FOLDER = Path(__file__).parent
FILES = {"/": ("live.html", "text/html"), "/live.css": ("live.css", "text/css"), "/live.js": ("live.js", "text/javascript")}
PICTURE_S = 1 / 60  # between pictures, at the least
STILL_S = 0.25  # ... while nothing changes
MOST_SENT = 150  # pictures a second for all pages together: many pages get fewer each, and the detector doesn't notice them
SHARE = 0.015  # of this process's CPU time that pages get at most while a detector can't keep up
LONGEST_MESSAGE = 1024  # bytes that a page may send at once
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address may hold the token
    "Cache-Control": "no-store",
}


class Spent:
    """What this thread, which serves the pages, and the whole process have computed since the last picture."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._thread_s, self._process_s = time.thread_time(), time.process_time()

    @property
    def too_much(self) -> bool:
        return time.thread_time() - self._thread_s > SHARE * (time.process_time() - self._process_s)


class Pictures:
    """One message for all pages that wait for one."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._waiting: list[asyncio.Future[bytes]] = []

    async def following(self) -> bytes:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return await waiting

    async def paint(self) -> None:
        """For ever: nothing is drawn while nobody waits, and little while nothing changes."""
        loop = asyncio.get_running_loop()
        seen, painted_s, spent = None, 0.0, Spent()
        while True:
            await asyncio.sleep(PICTURE_S)
            version = self.session.version
            recently = loop.time() - painted_s < STILL_S
            if not self._waiting or (recently and (version == seen or (self.session.behind and spent.too_much))):
                continue
            seen, painted_s = version, loop.time()
            spent.restart()
            message = self.session.message()
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                if not one.done():  # its page may have left
                    one.set_result(message)
            await asyncio.sleep(max(len(waiting) / MOST_SENT - PICTURE_S, 0))


def obey(session: Session, text: str) -> None:
    """What a page asks for: {"do": "rate", "value": 200}; InputError if it can't be done."""
    playback = session.playback
    numbers: dict[str, Callable[[float], None]] = {
        "rate": lambda value: setattr(session, "rate_hz", value),
        "speed": lambda value: setattr(playback, "speed", value),
        "seek": session.seek,
        "save": session.save,
    }
    words: dict[str, Callable[[str], None]] = {
        "window": lambda value: session.choose(window=value),
        "stepping": lambda value: session.choose(stepping=value),
    }
    deeds: dict[str, Callable[[], None]] = {
        "play": playback.play, "pause": playback.pause, "step": session.step, "stop-saving": session.stop_saving
    }  # fmt: skip
    try:
        wish = json.loads(text)
        name, value = wish["do"], wish.get("value")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError('expected {"do": NAME, "value": NUMBER}') from error
    if isinstance(name, str) and name in deeds:
        deeds[name]()
    elif isinstance(name, str) and name in numbers and isinstance(value, int | float) and not isinstance(value, bool):
        numbers[name](float(value))
    elif isinstance(name, str) and name in words and isinstance(value, str):
        words[name](value)
    else:
        raise InputError(f"expected ready, {', '.join(deeds)}, a number for {', '.join(numbers)}, or a word for {' or '.join(words)}")


def make_app(session: Session, token: str | None = None) -> "Starlette":
    """TOKEN: what the address of the page must hold; None: whoever reaches the port may look, if the page is called by a loopback name."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import FileResponse, PlainTextResponse, Response
    from starlette.routing import Route, WebSocketRoute
    from starlette.websockets import WebSocket

    pictures = Pictures(session)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> Any:
        painting = asyncio.create_task(pictures.paint())
        yield
        painting.cancel()

    async def page(request: Request) -> Response:
        if not invited(request, token):
            told = (
                "open the whole address that `saccade live` printed, with its token"
                if token
                else "open it as http://127.0.0.1 or localhost"
            )
            return PlainTextResponse(f"saccade: not allowed; {told}\n", 403, HEADERS)
        name, kind = FILES[request.url.path]
        return Response((FOLDER / name).read_bytes(), 200, HEADERS, f"{kind}; charset=utf-8")

    async def saved(request: Request) -> Response:
        """A file that this session has saved, to whoever may look."""
        path = next((path for path in session.saved if path.name == request.path_params["name"]), None)
        if not invited(request, token) or path is None or not path.is_file():
            return PlainTextResponse("saccade: no such file; it gets its name when it is complete\n", 404, HEADERS)
        return FileResponse(path, headers=HEADERS, filename=path.name)

    async def connect(viewer: WebSocket) -> None:
        if invited(viewer, token) and same_origin(viewer):
            await viewer.accept()
            await serve(viewer, pictures)
        else:
            await viewer.close(1008)

    # What the page looks like is no secret; the page itself and the pictures need the token.
    routes = [*(Route(path, page) for path in FILES), Route("/saved/{name}", saved), WebSocketRoute("/socket", connect)]
    return Starlette(routes=routes, lifespan=lifespan)


def invited(request: "HTTPConnection", token: str | None) -> bool:
    """With a token, who knows it. Without, who calls us by a loopback name: no other site's name may lead to this machine's port."""
    if token is not None:
        open_files = request.scope["type"] == "http" and request.url.path in ("/live.css", "/live.js")
        return open_files or secrets.compare_digest(request.query_params.get("token", "").encode(), token.encode())
    return is_loopback(_host(f"//{request.headers.get('host', '')}"))


def same_origin(request: "HTTPConnection") -> bool:
    """Browsers say which page connects: only ours may. Programs that aren't browsers say nothing."""
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


async def serve(viewer: "WebSocket", pictures: Pictures) -> None:
    """A picture for every "ready", and what it asks for is done, until it leaves."""
    from starlette.websockets import WebSocketDisconnect

    ready = asyncio.Event()

    async def show() -> None:
        while True:
            await ready.wait()
            ready.clear()
            await viewer.send_bytes(await pictures.following())

    showing = asyncio.create_task(show())
    try:
        async for text in viewer.iter_text():
            if text == '{"do":"ready"}':
                ready.set()
                continue
            try:
                await asyncio.to_thread(obey, pictures.session, text)  # opening files to save to may take a while
            except InputError as error:
                await viewer.send_text(json.dumps({"problem": str(error)}))
    except (WebSocketDisconnect, RuntimeError, KeyError):  # it left while it was told something, or sent bytes
        pass
    finally:
        showing.cancel()


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError, TypeError, ValueError) as error:  # the last two of names that no host can have
        raise InputError(f"can't listen on {host}, port {port} ({error}); choose another with --port, 0 for any that is free") from error


def page_address(listener: socket.socket, token: str | None) -> str:
    host, port = listener.getsockname()[:2]
    host = own_address() if host in ("0.0.0.0", "::") else host
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/" + (f"?token={token}" if token else "")


def own_address() -> str:
    """By which others reach this machine: a phone seldom knows its name, so the number of the network that leads out; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as finder:
        try:
            finder.connect(("192.0.2.1", 9))  # of no machine: for documentation
            return str(finder.getsockname()[0])
        except OSError:  # no network
            return socket.gethostname()


def make_server(session: Session, token: str | None = None) -> "uvicorn.Server":
    """`server.run(sockets=[listener])` serves until a signal, or until `server.should_exit`."""
    import uvicorn

    settings = uvicorn.Config(
        make_app(session, token), log_level="warning", access_log=False, ws="websockets-sansio", ws_max_size=LONGEST_MESSAGE,
        ws_per_message_deflate=False, timeout_graceful_shutdown=1, server_header=False,
    )  # fmt: skip
    return uvicorn.Server(settings)
