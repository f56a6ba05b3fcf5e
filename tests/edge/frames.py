"""HTTP/2 by hand: frames that a library would not write, on a connection that keeps no rules."""

import socket
import struct

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
ACK = END_STREAM = 1
END_HEADERS = 4
HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE = 1, 4
CODES = {
    0: "NO_ERROR",
    1: "PROTOCOL_ERROR",
    3: "FLOW_CONTROL_ERROR",
    6: "FRAME_SIZE_ERROR",
    9: "COMPRESSION_ERROR",
    11: "ENHANCE_YOUR_CALM",
}


def frame(kind, flags=0, stream=0, payload=b""):
    """The bytes of a frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(values=()):
    """A SETTINGS frame of numbered values."""
    payload = b"".join(struct.pack(">HI", name, value) for name, value in values)
    return frame(SETTINGS, payload=payload)


def window_update(stream, size):
    """A WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, stream=stream, payload=struct.pack(">I", size))


def request_block(path="/", method="GET", authority="127.0.0.1", fields=()):
    """A header block that uses and changes no table, so that it may be sent again and again."""
    pairs = [(":method", method), (":scheme", "http"), (":path", path), (":authority", authority)]
    encoder = hpack.Encoder()
    # Static entries and literals only: nothing depends on what was sent before.
    return b"".join(
        encoder.encode([hpack.NeverIndexedHeaderTuple(name, value)], huffman=False)
        for name, value in [*pairs, *fields]
    )


def request(stream, block, flags=END_STREAM):
    """The HEADERS of a request without a body."""
    return frame(HEADERS, flags | END_HEADERS, stream, block)


class Connection:
    """A connection over which frames go as they are."""

    def __init__(self, port, values=(), timeout=10, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(PREFACE + settings(values))
        self.buffer = bytearray()

    def send(self, content):
        """Frames, or anything."""
        self.socket.sendall(content)

    def read(self):
        """The next frame as (kind, flags, stream, payload); none at the end."""
        head = self.take(9)
        if head is None:
            return None
        size = int.from_bytes(head[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        payload = self.take(size)
        return None if payload is None else (kind, flags, stream & 0x7FFFFFFF, payload)

    def take(self, size):
        """So many bytes; none when the connection ends before."""
        while len(self.buffer) < size:
            data = self.socket.recv(65536)
            if not data:
                return None
            self.buffer += data
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken

    def close(self):
        """Without ceremony."""
        self.socket.close()


def goaway_code(payload):
    """The error code of a GOAWAY frame, by its name."""
    code = struct.unpack(">I", payload[4:8])[0]
    return CODES.get(code, str(code))
