"""Downloads: whole or not at all, resumed, checked, and with an error that says what to do.

The server is a real one, on this machine, and does what a test tells it to: it stalls, breaks off,
sends something else, knows about ranges or does not.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pooch
import pytest

from gradgroup.experiments.datasets import (
    MissingDataError,
    _download,
    _places,
    fetch,
    find,
    load,
)
from gradgroup.experiments.datasets._download import download_file
from gradgroup.experiments.datasets._records import File
from gradgroup.experiments.datasets._sources import SOURCES

CONTENT = bytes(range(256)) * 1000
HALF = len(CONTENT) // 2


class Answer(NamedTuple):
    """What the server does when it is asked for a path."""

    content: bytes = CONTENT
    status: int = 200
    ranges: bool = True
    """Whether it sends a part when it is asked for a part."""
    length: bool = True
    """Whether it says beforehand how much it sends."""
    until: int | None = None
    """Where it stops, counted from the beginning of the file."""
    stalls: bool = False
    """Whether it then leaves the connection open."""
    interrupts: bool = False
    """Whether somebody then presses Ctrl-C."""
    pause: float = 0.0
    """How long it rests after every quarter."""
    encoding: str | None = None
    """How it says that the content is packed."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        answer = self.server.answers[self.path]
        asked = self.headers["Range"]
        self.server.asked.append((self.path, asked))
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        start = start if answer.ranges else 0
        self.send_response(206 if start else answer.status)
        if answer.length:
            self.send_header("Content-Length", str(len(answer.content) - start))
        if answer.encoding:
            self.send_header("Content-Encoding", answer.encoding)
        self.end_headers()
        content = answer.content[start : answer.until]
        quarter = len(content) // 4 or 1
        for low in range(0, len(content), quarter):
            self.wfile.write(content[low : low + quarter])
            self.server.over.wait(answer.pause)
        if answer.interrupts:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if answer.stalls or answer.interrupts:
            self.server.over.wait(5.0)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for all of them

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.over = threading.Event()
        self.left = threading.Event()
        """A client has gone away in the middle of an answer."""

    def address(self, name: str, answer: Answer) -> str:
        self.answers[f"/{name}"] = answer
        return f"http://127.0.0.1:{self.server_port}/{name}"

    def handle_error(self, *_: object) -> None:
        self.left.set()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=partial(found.serve_forever, poll_interval=0.01))
        thread.start()
        yield found
        found.over.set()
        found.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def own_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRADGROUP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(_places, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(_download, "TIMEOUT", 0.2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "gradgroup" / "some"


def some_file(*addresses: str, content: bytes = CONTENT, name: str = "some.bin") -> File:
    return File(name, len(content), hashlib.sha256(content).hexdigest(), addresses)


def failure(file: File, folder: Path) -> str:
    """What is said of a download that fails; the good name is not given to anything."""
    with pytest.raises(MissingDataError) as caught:
        download_file(file, folder, progress=False)
    assert not (folder / file.name).exists()
    text = str(caught.value)
    assert "\n" not in text
    return text


def left_in(folder: Path) -> dict[str, int]:
    """The files that can be seen in a folder, and their sizes."""
    files = (path for path in folder.iterdir() if not path.name.startswith("."))
    return {path.name: path.stat().st_size for path in files}


# When all goes well.


@pytest.mark.parametrize("length", [True, False])
def test_a_file_is_downloaded(length: bool, server: Server, folder: Path) -> None:
    file = some_file(server.address("a", Answer(length=length)))
    assert download_file(file, folder, progress=False) == folder / "some.bin"
    assert (folder / "some.bin").read_bytes() == CONTENT
    assert left_in(folder) == {"some.bin": len(CONTENT)}
    assert server.asked == [("/a", None)]


def test_a_server_may_be_slow_if_only_it_goes_on(server: Server, folder: Path) -> None:
    """All in all it takes longer than it may say nothing."""
    file = some_file(server.address("a", Answer(pause=0.08)))
    assert download_file(file, folder, progress=False).read_bytes() == CONTENT


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip"])
def test_a_packed_file_is_not_unpacked_on_the_way(
    encoding: str, server: Server, folder: Path
) -> None:
    """Some servers announce a file that is packed as if they had packed it for the journey."""
    content = gzip.compress(CONTENT)
    file = some_file(server.address("a", Answer(content, encoding=encoding)), content=content)
    assert download_file(file, folder, progress=False).read_bytes() == content


def test_a_file_that_is_there_is_not_downloaded_again(server: Server, folder: Path) -> None:
    file = some_file(server.address("a", Answer()))
    for _ in range(2):
        download_file(file, folder, progress=False)
    assert len(server.asked) == 1


def test_a_file_that_has_been_damaged_is(server: Server, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "some.bin").write_bytes(b"damaged")
    download_file(some_file(server.address("a", Answer())), folder, progress=False)
    assert (folder / "some.bin").read_bytes() == CONTENT


def test_the_next_address_is_tried(server: Server, folder: Path) -> None:
    first = server.address("first", Answer(status=403))
    download_file(some_file(first, server.address("second", Answer())), folder, progress=False)
    assert [path for path, _ in server.asked] == ["/first", "/second"]


def test_who_comes_at_the_same_time_waits(server: Server, folder: Path) -> None:
    file = some_file(server.address("a", Answer()))
    threads = [threading.Thread(target=download_file, args=(file, folder, False)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (folder / "some.bin").read_bytes() == CONTENT
    assert len(server.asked) == 1


# What breaks off goes on.


def test_what_has_come_stays_and_the_next_try_asks_for_the_rest(
    server: Server, folder: Path
) -> None:
    file = some_file(server.address("a", Answer(until=HALF)))
    assert "a: the connection broke off" in failure(file, folder)
    assert left_in(folder) == {"some.bin.part": HALF}
    server.answers["/a"] = Answer()
    download_file(file, folder, progress=False)
    assert server.asked == [("/a", None), ("/a", f"bytes={HALF}-")]
    assert (folder / "some.bin").read_bytes() == CONTENT
    assert left_in(folder) == {"some.bin": len(CONTENT)}


def test_so_does_the_next_address(server: Server, folder: Path) -> None:
    first = server.address("first", Answer(until=HALF))
    download_file(some_file(first, server.address("second", Answer())), folder, progress=False)
    assert server.asked == [("/first", None), ("/second", f"bytes={HALF}-")]


def test_a_server_that_knows_no_ranges_begins_again(server: Server, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "some.bin.part").write_bytes(CONTENT[:HALF])
    file = some_file(server.address("a", Answer(ranges=False)))
    download_file(file, folder, progress=False)
    assert server.asked == [("/a", f"bytes={HALF}-")]
    assert (folder / "some.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("part", [b"bad" * 1000, b"bad" * len(CONTENT), bytes(len(CONTENT))])
def test_a_part_that_was_bad_is_thrown_away(part: bytes, server: Server, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "some.bin.part").write_bytes(part)
    download_file(some_file(server.address("a", Answer())), folder, progress=False)
    assert (folder / "some.bin").read_bytes() == CONTENT
    assert server.asked[-1] == ("/a", None)


def test_a_part_that_is_complete_needs_no_server(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "some.bin.part").write_bytes(CONTENT)
    download_file(some_file("http://127.0.0.1:9/a"), folder, progress=False)
    assert left_in(folder) == {"some.bin": len(CONTENT)}


def test_ctrl_c_leaves_nothing_under_the_good_name(server: Server, folder: Path) -> None:
    file = some_file(server.address("a", Answer(until=HALF, interrupts=True)))
    with pytest.raises(KeyboardInterrupt):
        download_file(file, folder, progress=False)
    assert set(left_in(folder)) == {"some.bin.part"}
    server.answers["/a"] = Answer()
    download_file(file, folder, progress=False)
    assert (folder / "some.bin").read_bytes() == CONTENT


# What goes wrong is said in a line, with a cure.


def test_an_error_names_file_address_reason_and_cure(server: Server, folder: Path) -> None:
    first = server.address("first", Answer(status=404))
    second = server.address("second", Answer(until=HALF, stalls=True))
    assert failure(some_file(first, second), folder) == (
        f"some.bin could not be downloaded ({first}: the server answered 404 Not Found; {second}: "
        f"nothing came for 0.2 seconds): try again, or put it by hand into {folder}."
    )


def test_a_server_that_never_answers(server: Server, folder: Path) -> None:
    server.shutdown()  # it still takes connections, but nobody looks at them
    file = some_file(server.address("a", Answer()))
    assert "/a: nothing came for 0.2 seconds)" in failure(file, folder)


def test_a_server_that_is_not_there(folder: Path) -> None:
    said = failure(some_file("http://127.0.0.1:9/a"), folder)
    assert "(http://127.0.0.1:9/a: the server could not be reached)" in said


def test_something_else_of_the_right_size(server: Server, folder: Path) -> None:
    file = some_file(server.address("a", Answer(content=CONTENT[::-1])))
    assert "a: what came has a wrong checksum)" in failure(file, folder)
    assert left_in(folder) == {}


def test_something_else_of_another_size_is_not_even_downloaded(
    server: Server, folder: Path
) -> None:
    """The page of a hotel's network, say; what has been downloaded before is not touched."""
    folder.mkdir(parents=True)
    (folder / "some.bin.part").write_bytes(CONTENT[:HALF])
    page = Answer(content=b"<html>Sign in</html>", ranges=False)
    said = failure(some_file(server.address("a", page)), folder)
    assert f"a: it has 20 bytes there instead of {len(CONTENT)})" in said
    assert left_in(folder) == {"some.bin.part": HALF}


def test_more_than_there_should_be_is_not_read_to_its_end(server: Server, folder: Path) -> None:
    endless = Answer(content=CONTENT + bytes(50_000_000), length=False)
    file = some_file(server.address("a", endless))
    assert "a: what came has a wrong checksum)" in failure(file, folder)
    assert server.left.wait(5.0)


def test_less_than_there_should_be_is_kept(server: Server, folder: Path) -> None:
    file = some_file(server.address("a", Answer(until=HALF, length=False)))
    assert "a: the connection broke off)" in failure(file, folder)
    assert left_in(folder) == {"some.bin.part": HALF}


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    folder = tmp_path / "file" / "some"
    assert failure(some_file("http://127.0.0.1:9/a"), folder) == (
        f"some.bin could not be written to {folder}: Not a directory."
    )


# The progress bar.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "progress", "shown"),
    [(Terminal, True, True), (Terminal, False, False), (io.StringIO, True, False)],
)
def test_progress_is_shown_on_a_terminal(
    stream: Any,
    progress: bool,
    shown: bool,
    server: Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    download_file(some_file(server.address("a", Answer())), folder, progress=progress)
    written = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert ("some.bin: 100%" in written) == shown
    assert bool(written) == shown


def test_pooch_says_nothing_beside_it(server: Server, folder: Path) -> None:
    logger, said = pooch.get_logger(), io.StringIO()
    handler = logging.StreamHandler(said)
    logger.addHandler(handler)
    try:
        download_file(some_file(server.address("a", Answer())), folder, progress=True)
    finally:
        logger.removeHandler(handler)
    assert said.getvalue() == ""


# Data sets.


@pytest.fixture
def mnist(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five images and labels, where MNIST is published."""
    files = []
    for part in ("train", "t10k"):
        for kind, shape in (("images-idx3", (5, 28, 28)), ("labels-idx1", (5,))):
            sizes = b"".join(size.to_bytes(4, "big") for size in shape)
            body = bytes(5 * 28 * 28) if len(shape) == 3 else bytes(range(5))
            content = gzip.compress(bytes([0, 0, 8, len(shape)]) + sizes + body)
            name = f"{part}-{kind}-ubyte.gz"
            address = server.address(name, Answer(content))
            files.append(some_file(address, content=content, name=name))
    source = SOURCES["mnist"]._replace(files=tuple(files))
    monkeypatch.setitem(SOURCES, "mnist", source)


@pytest.mark.usefixtures("mnist")
def test_fetch_brings_all_files_into_the_cache(server: Server, tmp_path: Path) -> None:
    paths = fetch("mnist", progress=False)
    assert [path.parent for path in paths] == 4 * [tmp_path / "cache" / "gradgroup" / "mnist"]
    assert len(server.asked) == 4
    found = find("mnist", "test")
    assert found is not None
    assert found.paths == paths[2:]
    assert fetch("mnist", progress=False) == paths
    assert len(server.asked) == 4


@pytest.mark.usefixtures("mnist")
def test_load_downloads_what_it_needs_once(server: Server) -> None:
    for _ in range(2):
        assert load("mnist").y.tolist() == [0, 1, 2, 3, 4]
    assert [path for path, _ in server.asked] == [
        "/train-images-idx3-ubyte.gz",
        "/train-labels-idx1-ubyte.gz",
    ]


@pytest.mark.usefixtures("mnist")
def test_load_downloads_nothing_when_it_shall_not(server: Server) -> None:
    with pytest.raises(MissingDataError, match=r"^The files of mnist were not found in "):
        load("mnist", download=False)
    assert server.asked == []


def test_every_file_has_addresses_a_size_and_a_checksum() -> None:
    for source in SOURCES.values():
        names = {name for part in source.editions[0][:2] for name in part}
        assert names == {file.name for file in source.files}
        for file in source.files:
            assert all(address.endswith(f"/{file.name}") for address in file.addresses)
            assert len(bytes.fromhex(file.sha256)) == 32
            assert file.size > 4000
