"""Many streams at once: opens /v1/completions streams with asyncio and collects what each one
got."""

import asyncio
import json
import time


class Stream:
    """What one client got."""

    def __init__(self):
        self.status = None
        self.ids = []
        self.text = ""
        self.finish = None
        self.done = False  # [DONE] came
        self.times = []  # of each token chunk, time.monotonic()
        self.sent = None
        self.error = None
        self.logprobs = []

    @property
    def whole(self):
        return self.status == 200 and self.done and self.finish is not None and not self.error

    def take(self, data):
        """One event's data."""
        if data == "[DONE]":
            self.done = True
            return
        event = json.loads(data)
        if "error" in event:
            self.error = event["error"]
            return
        for choice in event["choices"]:
            ids = choice.get("token_ids") or []
            if ids or choice["text"]:
                self.times.append(time.monotonic())
            self.ids += ids
            self.text += choice["text"]
            self.finish = choice["finish_reason"] or self.finish
            if choice.get("logprobs"):
                self.logprobs.append(choice["logprobs"])


async def read_chunked(reader):
    """The chunks of a body, one by one."""
    while True:
        size = int((await reader.readline()).strip(), 16)
        data = await reader.readexactly(size + 2)
        if size == 0:
            return
        yield data[:-2]


async def open_stream(host, port, body):
    """One completion on a connection of its own."""
    stream = Stream()
    payload = json.dumps({"stream": True, "return_token_ids": True, **body}).encode()
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    try:
        stream.sent = time.monotonic()
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: weft\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(payload) + payload
        )
        head = await reader.readuntil(b"\r\n\r\n")
        stream.status = int(head.split(b" ", 2)[1])
        if stream.status != 200:
            stream.error = (await reader.read()).decode(errors="replace")
            return stream
        pending = b""
        async for chunk in read_chunked(reader):
            pending += chunk
            *events, pending = pending.split(b"\n\n")
            for event in events:
                if event.startswith(b"data: "):
                    stream.take(event[len(b"data: "):].decode())
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        stream.error = repr(error)
    finally:
        writer.close()
    return stream


def run_streams(server, bodies, seconds=300):
    """All of them at once; returns a Stream for each, in order."""

    async def together():
        opened = [open_stream(server.host, server.port, body) for body in bodies]
        return await asyncio.wait_for(asyncio.gather(*opened), seconds)

    return asyncio.run(together())
