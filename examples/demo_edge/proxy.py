"""The network between producer and gateway: a TCP proxy that can be cut."""

import contextlib
import socket
import threading


class Network:
    """Connects whoever comes to `address` with *target* ("host:port"), which may change."""

    def __init__(self, target: str) -> None:
        self.target, self.cuts = target, 0
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Cut all connections."""
        self.cuts += 1
        for each in [*self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it."""
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                host, _, port = self.target.rpartition(":")
                try:
                    far = socket.create_connection((host, int(port)), 5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                self._open |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            self._open.discard(each)
