"""A real ZooKeeper as a child process, from the jars that pyspark brings. For `kwob up` and for the tests.

A standalone server on the loopback interface, without fsync: what it stores survives its restart, not a power cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog

from controller.wire import log_events as ev
from controller.world.large_requests import JUTE_MAXBUFFER
from controller.world.real.disks import if_full
from controller.world.real.java import find_java, java_locale
from controller.world.real.ports import free_ports
from controller.world.real.process_groups import kill_group

log = structlog.get_logger(__name__)

#: The server rounds session timeouts to this, and checks for expired sessions this often.
TICK_MS: Final = 500
SESSION_TIMEOUT_MS: Final = (1_000, 120_000)

_POLL_S: Final = 0.03
_ATTEMPTS: Final = 5
_LOG_LINES: Final = 12
#: How the lines of a Java stack begin, which would hide the reason above them.
_NO_REASON: Final = ("at ", "... ")

#: Java reads this as Latin-1 with escapes, and its command line as the locale has it: folders are relative to its own.
_ZOO_CFG: Final = """\
tickTime={tick}
minSessionTimeout={shortest}
maxSessionTimeout={longest}
dataDir=data
clientPort={port}
clientPortAddress={host}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok,mntr,cons,dump,wchs,envi
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""
_LOG4J: Final = """\
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
"""
#: Runs a command until it ends or standard input does: the child dies with its parent, however that died, on every
#: POSIX system. (Linux' parent-death signal would fire when the *thread* that forked ends.)
_UNTIL_PARENT_DIES: Final = """\
exec 3<&0
"$@" </dev/null 3<&- &
child=$!
( while read -r _ <&3; do :; done; kill "$child" 2>/dev/null ) &
watcher=$!
exec 3<&-
wait "$child"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"""


class EmbeddedZooKeeperError(Exception):
    """The server could not be started. The message says why, with the last lines of its log where it has one."""


class EmbeddedZooKeeper:
    """A ZooKeeper process. `start` and `stop`, or `async with`. It ends with the process that started it.

    `data` is the folder for its data, configuration and log; an existing one is carried on with. Port 0 takes a free
    port. It belongs to no event loop: it may be started in one and stopped in another.
    """

    def __init__(self, data: Path, *, host: str = "127.0.0.1", port: int = 0, start_timeout_s: float = 60.0) -> None:
        self._data = data
        self._host = host
        self._wanted_port = port
        self._port = port
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port`, as in `zookeeper.connect`; known once it is started."""
        return f"{self._host}:{self._port}"

    @property
    def log_file(self) -> Path:
        """What the server prints."""
        return self._data / "zookeeper.log"

    @property
    def pid(self) -> int:
        """The leader of the server's process group."""
        if self._process is None:
            raise EmbeddedZooKeeperError("ZooKeeper is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> Self:
        """Starts the server and waits until it answers.

        Raises: JavaNotFound; EmbeddedZooKeeperError (pyspark is missing, the port is taken, it died or hangs).
        """
        for attempt in range(1, _ATTEMPTS + 1):
            self._port = self._wanted_port or free_ports(1, self._host)[0]
            self._process = self.spawn()
            try:
                async with asyncio.timeout(self._start_timeout_s):
                    if await self._answers():
                        log.info(ev.ZOOKEEPER_STARTED, address=self.address, pid=self.pid, log_file=str(self.log_file))
                        return self
            except TimeoutError:
                tail = self._log_tail()
                await self.stop()
                raise EmbeddedZooKeeperError(
                    f"ZooKeeper did not answer within {self._start_timeout_s:g} s{tail}"
                ) from None
            except BaseException:
                await self.stop()
                raise
            tail = self._log_tail()
            await self.stop()
            lost_race = "Address already in use" in tail and self._wanted_port == 0
            if not lost_race or attempt == _ATTEMPTS:
                break
        raise EmbeddedZooKeeperError(f"ZooKeeper ended before it answered at {self.address}{tail}")

    async def stop(self, *, timeout_s: float = 10.0) -> None:
        """Ends the server; kills it when that takes longer than `timeout_s`. Idempotent. Its port is free then, also
        when it was killed, unless what was killed does not end within `timeout_s`."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, timeout_s)
        await kill_group(process.pid, timeout_s)
        process.wait()
        log.info(ev.ZOOKEEPER_STOPPED, address=self.address)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def spawn(self) -> subprocess.Popen[bytes]:
        """Its process, which does not answer yet. Raises: EmbeddedZooKeeperError, JavaNotFound."""
        _check_free(self._host, self._port)
        java = find_java()
        self._data.mkdir(parents=True, exist_ok=True)
        shortest, longest = SESSION_TIMEOUT_MS
        config = _ZOO_CFG.format(tick=TICK_MS, shortest=shortest, longest=longest, host=self._host, port=self._port)
        (self._data / "zoo.cfg").write_text(config)
        (self._data / "log4j2.properties").write_text(_LOG4J)
        command = [str(java.executable.absolute()), *self._java_options(), "-cp", _classpath()]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"]
        with self.log_file.open("wb") as output:
            return subprocess.Popen(
                ["/bin/sh", "-c", _UNTIL_PARENT_DIES, "zookeeper", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._data,
                env={**os.environ, **java_locale(os.environ)},
                start_new_session=True,  # Ctrl-C in the terminal is for the parent, which stops its children in order
            )

    def _java_options(self) -> list[str]:
        return [
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Djute.maxbuffer={JUTE_MAXBUFFER}",
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.preAllocSize=1024",
            "-Dlog4j2.configurationFile=log4j2.properties",
            f"-Dkwob.folder={self._data}",  # whose process it is, for who looks at command lines
        ]

    async def _answers(self) -> bool:
        """Waits until the server answers; False when it ended before."""
        while self.running:
            with contextlib.suppress(OSError):
                if b"Zookeeper version" in await _four_letters(self._host, self._port, b"srvr"):
                    return True
            await asyncio.sleep(_POLL_S)
        return False

    def _log_tail(self) -> str:
        written = self.log_file.read_text(errors="replace").splitlines()
        lines = [line for line in written if not line.lstrip().startswith(_NO_REASON)][-_LOG_LINES:]
        if not lines:
            return f"; {self.log_file} is empty{if_full(self.log_file)}"
        return f"; the end of {self.log_file}:\n" + "\n".join(lines)


async def _four_letters(host: str, port: int, word: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(word)
        return await reader.read(4096)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _classpath() -> str:
    package = find_spec("pyspark")
    for place in (package.submodule_search_locations or ()) if package else ():
        jars = Path(place) / "jars"
        if any(jars.glob("zookeeper-*.jar")):
            return f"{jars}/*"
    raise EmbeddedZooKeeperError("no ZooKeeper jar found: it comes with pyspark: pip install 'kwob[up]'")


def _check_free(host: str, port: int) -> None:
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        raise EmbeddedZooKeeperError(f"ZooKeeper cannot listen on {host}:{port}: {error.strerror or error}") from error
