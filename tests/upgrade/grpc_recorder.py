"""A proxy for one gRPC connection without TLS, which records a stream.

Of HTTP/2 (RFC 9113) it reads the frames of type DATA, and of these the messages
of gRPC: a byte that says whether it is compressed, four of length, the bytes.
"""
import base64
import socket
import threading

PREFACE = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
DATA = 0


class _Direction:
    """The bytes of one direction of a connection."""

    def __init__(self, mark, preface, take):
        self.mark, self.take = mark, take
        self.skip, self.bytes, self.streams = preface, b"", {}

    def feed(self, data):
        self.bytes += data
        if self.skip:
            if len(self.bytes) < self.skip:
                return
            self.bytes, self.skip = self.bytes[self.skip:], 0
        while len(self.bytes) >= 9:
            size = int.from_bytes(self.bytes[:3], "big")
            if len(self.bytes) < 9 + size:
                return
            kind, flags = self.bytes[3], self.bytes[4]
            stream = int.from_bytes(self.bytes[5:9], "big") & 0x7FFFFFFF
            payload = self.bytes[9:9 + size]
            self.bytes = self.bytes[9 + size:]
            if kind != DATA:
                continue
            assert not flags & 8, "a padded frame"
            self._data(stream, payload)

    def _data(self, stream, payload):
        left = self.streams.get(stream, b"") + payload
        while len(left) >= 5:
            size = int.from_bytes(left[1:5], "big")
            if len(left) < 5 + size:
                break
            assert left[0] == 0, "a compressed message"
            self.take(stream, self.mark, left[5:5 + size])
            left = left[5 + size:]
        self.streams[stream] = left


class Recorder:
    """Takes one connection at `port` and passes it to `target`."""

    def __init__(self, target):
        self._target = target
        self._lock = threading.Lock()
        self._stream = None
        self._lines = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def lines(self):
        """"> MESSAGE" of the client and "< MESSAGE" of the server, in base64,
        of the stream that was opened first."""
        with self._lock:
            return list(self._lines)

    def _serve(self):
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._target))
            up = _Direction(">", PREFACE, self._take)
            down = _Direction("<", 0, self._take)
            for source, to, direction in ((client, server, up),
                                          (server, client, down)):
                threading.Thread(target=self._pump,
                                 args=(source, to, direction),
                                 daemon=True).start()

    def _pump(self, source, to, direction):
        try:
            while data := source.recv(65536):
                direction.feed(data)
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            to.close()

    def _take(self, stream, mark, message):
        with self._lock:
            if self._stream is None:
                self._stream = stream
            if stream == self._stream:
                text = base64.b64encode(message).decode()
                self._lines.append(f"{mark} {text}")
