"""A real server for tests: started, waited for, asked, and stopped.

    with Weft("--null-step-us", "2000") as server:
        status, headers, body = server.get("/health")

Nothing here sleeps for a fixed time: waiting is always for something, with a deadline. The server's
log is read by a thread, so that it never blocks, and is there to be asserted on and to be shown
when a test fails.

WEFT_BINARY names another binary than build/weft.
"""

import http.client
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("WEFT_BINARY", str(ROOT / "build" / "weft"))
# Generous, because test machines are slow and busy; nothing ever waits this long when all is well.
PATIENCE_SECONDS = 60
STOP_SECONDS = 1  # for a drain that nobody waits for


def wait_until(condition, what, seconds=PATIENCE_SECONDS):
    """Returns the first true value of condition()."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(0.005)


class Weft:
    """One `weft serve` process."""

    def __init__(self, *options, model=None, device="null", environment=None):
        self.options = list(options)
        self.model = model
        self.device = device
        self.environment = environment or {}
        self.process = None
        self.readers = []
        self.host = "127.0.0.1"
        self.port = None
        self.lines = []
        self.printed = ""
        self._changed = threading.Condition()

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        if kind is not None:
            print("--- the server's log ---\n" + "".join(self.lines))
        self.stop()

    def command(self):
        command = [BINARY, "serve", "--device", self.device]
        if self.model:
            command += ["--model", str(self.model)]
        if "--port" not in self.options:
            command += ["--port", "0"]
        return command + [str(o) for o in self.options]

    def launch(self):
        """Starts the process without waiting for it."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        environment.update(self.environment)
        self.process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
        )
        self.readers = [threading.Thread(target=self._read_log, daemon=True)]
        self.readers += [threading.Thread(target=self._read_output, daemon=True)]
        for reader in self.readers:
            reader.start()
        return self

    def start(self):
        self.launch()
        line = self.wait_log(r"\bready\b.*\baddress=")
        self.port = int(re.search(r"address=\S*:(\d+)", line).group(1))
        return self

    def _read_log(self):
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _read_output(self):
        for line in self.process.stdout:
            with self._changed:
                self.printed += line
                self._changed.notify_all()

    def wait_log(self, pattern, seconds=PATIENCE_SECONDS):
        """Waits for a line that matches, from the start of the log on; returns it."""
        deadline = time.monotonic() + seconds
        with self._changed:
            seen = 0
            while True:
                for line in self.lines[seen:]:
                    if re.search(pattern, line):
                        return line
                seen = len(self.lines)
                left = deadline - time.monotonic()
                dead = self.process.poll() is not None
                assert left > 0 and not dead, f"no line {pattern!r} in:\n" + "".join(self.lines)
                self._changed.wait(min(left, 0.2))

    def log_of(self, request_id):
        """The fields of a request's line in the log; waits for it."""
        line = self.wait_log(rf"\brequest\b.*\brequest={re.escape(request_id)}(\s|$)")
        return dict(w.split("=", 1) for w in shlex.split(line) if "=" in w)

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, seconds=PATIENCE_SECONDS):
        """Returns the exit code."""
        return self.process.wait(seconds)

    def stop(self):
        """Ends it if it still runs, and fails where a sanitizer or must() has complained."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for reader in self.readers:
            reader.join()
        self.process = None
        bad = [line for line in self.lines if re.search("Sanitizer|runtime error|must\\(", line)]
        assert not bad, "".join(self.lines[-200:])

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def request(self, method, path, body=None, headers=None, timeout=PATIENCE_SECONDS):
        """One request on its own connection: (status, headers with lower-case names, body)."""
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            got = {k.lower(): v for k, v in response.getheaders()}
            return response.status, got, response.read()
        finally:
            connection.close()

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body, **options):
        return self.request("POST", path, body, **options)

    def metrics(self):
        """Sample name, labels included, to value."""
        status, _, text = self.get("/metrics")
        assert status == 200
        samples = {}
        for line in text.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name] = float(value)
        return samples

    def gauge(self, name):
        """The sum of a metric over its labels."""
        return sum(v for k, v in self.metrics().items() if k.split("{")[0] == name)

    def connect(self, timeout=PATIENCE_SECONDS):
        return Connection(self.host, self.port, timeout)


class Connection:
    """A bare socket that can read HTTP answers, for what no well-behaved client would do."""

    def __init__(self, host, port, timeout=PATIENCE_SECONDS):
        self.socket = socket.create_connection((host, port), timeout)
        self.pending = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else data.encode())

    def more(self):
        """Reads what comes next; False at the end of the connection."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            return False
        self.pending += data
        return bool(data)

    def read_until(self, mark):
        while mark not in self.pending:
            assert self.more(), f"closed before {mark!r}: {self.pending!r}"
        head, self.pending = self.pending.split(mark, 1)
        return head

    def read_exactly(self, count):
        while len(self.pending) < count:
            assert self.more(), f"closed after {len(self.pending)} of {count} bytes"
        data, self.pending = self.pending[:count], self.pending[count:]
        return data

    def read_head(self):
        """(status, headers with lower-case names)"""
        lines = self.read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        return status, {k.lower(): v.strip() for k, v in (l.split(":", 1) for l in lines[1:])}

    def read_answer(self, head=False):
        """(status, headers, body); `head` for answers to HEAD."""
        status, headers = self.read_head()
        if head or status in (100, 204, 304):
            return status, headers, b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return status, headers, b"".join(self.chunks())
        if "content-length" in headers:
            return status, headers, self.read_exactly(int(headers["content-length"]))
        return status, headers, self.read_rest()

    def chunks(self):
        """The chunks of a chunked body, one by one."""
        while True:
            size = int(self.read_until(b"\r\n"), 16)
            data = self.read_exactly(size)
            assert self.read_exactly(2) == b"\r\n"
            if size == 0:
                return
            yield data

    def read_rest(self):
        while self.more():
            pass
        data, self.pending = self.pending, b""
        return data

    def closed_by_peer(self):
        """Waits for the end of the connection. False: something else came first."""
        return not self.pending and not self.more()

    def reset(self):
        """Closes with a RST, as a killed client or a crashed machine would."""
        import struct

        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()


def events_of(body):
    """The data of server-sent events; comments are left out."""
    text = body.decode() if isinstance(body, bytes) else body
    assert text.endswith("\n\n"), "the last event is cut"
    blocks = [b for b in text.split("\n\n") if b]
    return [b[len("data: "):] for b in blocks if not b.startswith(":")]
