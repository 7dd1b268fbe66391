"""TLS 1.3: encrypted sockets, the certificates of a server, and what ranks trust.

A server has a certificate and its key, of its own authority (`penstock keys`) or from elsewhere.
A rank knows the authority (`ca`) and checks the server's name. With `client_ca` the server lets in
only those whose certificate that authority has signed.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from penstock.errors import AccessDenied

log = logging.getLogger(__name__)

StrPath: TypeAlias = str | os.PathLike[str]

# What one record of TLS carries: more is not encrypted in one call anyway.
RECORD: Final = 16 << 10
# What is encrypted in one go, and received: OpenSSL keeps as much memory for each connection.
AT_ONCE: Final = 64 << 10
MOST_AT_ONCE: Final = 256 << 10
# Bytes that may come and carry nothing, a handshake's included: several times those of one record.
MOST_IDLE: Final = 128 << 10
# How long before a certificate expires its owner is warned.
WARN_BEFORE: Final = timedelta(days=30)
# The first byte of whoever begins to speak TLS.
HANDSHAKE: Final = 0x16
# What one who speaks TLS is told where nobody does: a fatal alert, "protocol version".
NO_TLS_HERE: Final = bytes((0x15, 3, 3, 0, 2, 2, 70))
# Parts of the names that OpenSSL has for alerts about a certificate.
_ABOUT_CERTIFICATES: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR")


# --- sockets ---------------------------------------------------------------------------------


class TlsSocket:
    """An encrypted connection over a plain socket, as `wire.tcp_stream` uses a socket.

    OpenSSL works on memory here, not on the socket: else one call could go on reading for as long
    as a peer sends records that carry nothing, and keep the caller's thread for itself.

    One thread may read while another one writes. OpenSSL cannot bear that, so each call to it has a
    lock, for as long as one record takes. It may be entered again, since a finalizer that runs in
    the reader's thread may have something to send.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        connected: socket.socket,
        *,
        server_side: bool = False,
        server_name: str | None = None,
        at_once: int = AT_ONCE,
    ) -> None:
        self._socket = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        self._lock = threading.RLock()
        self._at_once = at_once
        self._unsent = memoryview(b"")  # encrypted, and not with the kernel yet
        self._accepted = 0  # bytes that it was made of, which the caller was not told of
        self._idle = 0  # bytes received since the last that carried something

    def fileno(self) -> int:
        """The socket's descriptor; -1 once closed."""
        return self._socket.fileno()

    # --- the handshake ---

    def handshake(self) -> int | None:
        """Goes on with the handshake. None once it is done, else the event to poll for.

        OSError, as `explained` tells, if it fails.
        """
        while True:
            done = self._shake()
            if not self._flush():
                return select.POLLOUT
            if done:
                self._idle = 0
                return None
            try:
                self._receive()
            except BlockingIOError:
                return select.POLLIN

    def _shake(self) -> bool:
        with self._lock:
            try:
                self._tls.do_handshake()
                return True
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLError:
                self._collect()
                with suppress(OSError):
                    self._flush()  # the other side is told why
                raise
            finally:
                self._collect()

    def peer_name(self) -> str | None:
        """The name in the other side's certificate, which was checked; None if there is none."""
        found: dict[str, Any] = self._tls.getpeercert() or {}
        named = dict(pair for pairs in found.get("subject", ()) for pair in pairs)
        return named.get("commonName")

    # --- out ---

    def send(self, data: bytes) -> int:
        """Sends the beginning of what is given; how many bytes. BlockingIOError without room."""
        return self.sendmsg([data])

    def sendmsg(self, buffers: list[Any]) -> int:
        """Sends the beginning of what is given; how many bytes. BlockingIOError without room.

        What was encrypted and found no room is sent by the next call, which must be given the same
        bytes again. Small buffers are put together into one record.
        """
        if not self._accepted:
            first = buffers[0]
            is_small = len(first) < RECORD and len(buffers) > 1
            self._encrypt(memoryview(_joined(buffers) if is_small else first)[:AT_ONCE])
        if not self._flush():
            raise BlockingIOError
        sent, self._accepted = self._accepted, 0
        return sent

    def _encrypt(self, view: memoryview) -> None:
        while self._accepted < len(view):
            with self._lock:  # for one record: others may need it in between
                self._accepted += self._tls.write(view[self._accepted :])
        with self._lock:
            self._collect()

    def _collect(self) -> None:
        if self._outgoing.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())

    def _flush(self) -> bool:
        """Gives the kernel what is encrypted; False if it has no room for all of it."""
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent = self._unsent[sent:]
        return True

    # --- in ---

    def recv_into(self, buffer: Any) -> int:
        """Receives what one record has; how many bytes, 0 at the end. BlockingIOError for none."""
        nbytes = self._decrypt(buffer) if self.has_buffered else None
        if nbytes is None:
            self._receive()
            nbytes = self._decrypt(buffer)
        if nbytes is None:
            raise BlockingIOError
        return nbytes

    @property
    def has_buffered(self) -> bool:
        """Whether something was received and not decrypted: perhaps a part of a record only."""
        if self._incoming.pending:
            return True
        with self._lock:
            return self._tls.pending() > 0

    def recvmsg_into(self, buffers: list[Any]) -> tuple[int]:
        """Receives into the first of some buffers, as many records as there are for it."""
        received, view = 0, buffers[0]
        try:
            while received < len(view) and (nbytes := self.recv_into(view[received:])):
                received += nbytes
        except BlockingIOError:
            if not received:
                raise
        return (received,)

    def _decrypt(self, buffer: Any) -> int | None:
        """What is there, of one record; None if there is no complete one."""
        with self._lock:
            try:
                nbytes: Any = self._tls.read(len(buffer), buffer)  # the stub means another form
            except ssl.SSLWantReadError:
                return None
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0
        if nbytes:
            self._idle = 0
        return int(nbytes)

    def _receive(self) -> None:
        """Takes in some of what has come. BlockingIOError if nothing has.

        A peer may send records that carry nothing (`KeyUpdate`), each of which costs time, or a
        handshake without end. Nobody who means well sends much of either.
        """
        if self._idle > MOST_IDLE:
            raise ConnectionAbortedError(errno.ECONNABORTED, "records came that carry nothing")
        scratch = _scratch()[: self._at_once]
        nbytes = self._socket.recv_into(scratch)
        self._idle += nbytes
        with self._lock:
            if nbytes:
                self._incoming.write(scratch[:nbytes])
            else:
                self._incoming.write_eof()

    # --- the socket itself ---

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Sets an option of the plain socket."""
        self._socket.setsockopt(level, option, value)

    def shutdown(self, how: int) -> None:
        """Ends a direction of the connection, without TLS's own farewell."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        self._socket.close()


def _joined(buffers: list[Any]) -> bytearray:
    """As much of small buffers as fits one record."""
    joined = bytearray()
    for buffer in buffers:
        joined += buffer[: RECORD - len(joined)]
        if len(joined) >= RECORD:
            break
    return joined


_memory = threading.local()


def _scratch() -> memoryview:
    """This thread's memory for what is received: a connection of its own would cost too much."""
    found: memoryview | None = getattr(_memory, "scratch", None)
    if found is None:
        found = _memory.scratch = memoryview(bytearray(MOST_AT_ONCE))
    return found


def explained(error: OSError, address: str) -> Exception:
    """What a failed handshake means, as an error to raise.

    `AccessDenied` for what will fail again: a certificate that one side does not trust.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return AccessDenied(
            f"the certificate of {address} is not trusted: {error.verify_message} (setting: ca)"
        )
    reason = str(getattr(error, "reason", None) or error.strerror or error)
    if is_about_certificates(reason):
        return AccessDenied(
            f"{address} does not trust our certificate, or wants one: {reason} (settings: "
            "certificate, key)"
        )
    return ConnectionError(
        f"no TLS with {address}: {reason}. Perhaps the server does not encrypt (tcp://)"
    )


def is_about_certificates(reason: str) -> bool:
    """Whether a connection ended because one side does not trust the other's certificate.

    With TLS 1.3 a client may hear of that only when it reads for the first time.
    """
    return any(word in reason.upper().replace(" ", "_") for word in _ABOUT_CERTIFICATES)


# --- a server's certificate ------------------------------------------------------------------


class Clock(Protocol):
    """Tells the time; a test brings its own."""

    def __call__(self) -> datetime: ...


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


@dataclass(eq=False)
class ServerCertificates:
    """The files of a server's certificate, and what was read from them last.

    `reload` reads them again: connections that are made from then on use what it found, those there
    are keep what they have.
    """

    certificate: Path
    key: Path | None = None  # None: it is in the certificate's file
    client_ca: Path | None = None
    context: ssl.SSLContext = field(init=False)
    expires: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.reload()

    def reload(self) -> None:
        """Reads the files. If they make no sense, ValueError, and all stays as it was."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # ranks connect once, and a ticket costs memory
        load_chain(context, self.certificate, self.key)
        if self.client_ca is not None:
            load_authority(context, self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        self.context, self.expires = context, expiry_of(self.certificate)

    def warning(self, at: datetime) -> str | None:
        """What to tell the operator about the certificate's age; None while there is time."""
        left = self.expires - at
        if left > WARN_BEFORE:
            return None
        when = f"{self.expires:%Y-%m-%d %H:%M} UTC"
        if left <= timedelta(0):
            return f"the certificate {self.certificate} has expired ({when}): no rank can connect"
        return (
            f"the certificate {self.certificate} expires in {left.days} days ({when}): renew it, "
            "and send the server SIGHUP"
        )


def client_context(
    ca: StrPath | None, certificate: StrPath | None = None, key: StrPath | None = None
) -> ssl.SSLContext:
    """What a rank trusts, and who it is. Without `ca` it trusts the system's authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if ca is None:
        context.load_default_certs()
    else:
        load_authority(context, Path(ca))
    if certificate is not None:
        load_chain(context, Path(certificate), None if key is None else Path(key))
    return context


def load_chain(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Gives a context its certificate. ValueError or OSError that names the file."""
    for path in (certificate, key):
        if path is not None:
            path.open("rb").close()  # an OSError that names it
    private = key or certificate
    if os.name == "posix" and private.stat().st_mode & 0o007:
        log.warning("others can read the private key %s: chmod 600 it", private)
    try:
        context.load_cert_chain(certificate, key, _no_password)
    except ssl.SSLError as error:
        raise ValueError(
            f"{certificate} and {private} are no certificate with its private key, in PEM: "
            f"{error.reason or error}"
        ) from None


def load_authority(context: ssl.SSLContext, path: Path) -> None:
    """Has a context trust what an authority signs. ValueError or OSError that names the file."""
    path.open("rb").close()
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ValueError(f"{path} has no certificate in PEM: {error.reason or error}") from None


def _no_password() -> str:
    raise ValueError("the private key is encrypted: give one without a passphrase")


# --- when a certificate expires --------------------------------------------------------------

_SEQUENCE, _EXPLICIT_0, _UTC_TIME = 0x30, 0xA0, 0x17


def expiry_of(path: Path) -> datetime:
    """When the first certificate in a PEM file expires. ValueError if there is none."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    text = path.read_text(errors="replace")
    first = text.partition(begin)[2].partition(end)[0]
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(f"{begin}{first}{end}"))
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path} has no certificate in PEM: {error}") from None


def _not_after(der: bytes) -> datetime:
    """The end of validity in an X.509 certificate: of its fields only these are looked at."""
    _, certificate, _ = _element(der)
    _, signed, _ = _element(certificate)
    kind, _, rest = _element(signed)
    if kind == _EXPLICIT_0:  # the version, where it is not the first
        kind, _, rest = _element(rest)
    for _ in ("algorithm", "issuer"):
        _, _, rest = _element(rest)
    _, validity, _ = _element(rest)
    _, _, rest = _element(validity)
    kind, until, _ = _element(rest)
    # Years of two digits are those from 1950 to 2049; `strptime` has 1969 to 2068, which is the
    # same for a certificate that has not expired.
    form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(until.decode("ascii"), form).replace(tzinfo=UTC)


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """The first element of DER: its tag, its content, and what follows it."""
    tag, size, at = data[0], data[1], 2
    if size & 0x80:
        at += size & 0x7F
        size = int.from_bytes(data[2:at])
    if at + size > len(data):
        raise ValueError("it is cut short")
    return tag, data[at : at + size], data[at + size :]
