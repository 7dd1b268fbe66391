"""TLS 1.3: encrypted sockets, the certificates of a server, and what ranks trust.

A server has a certificate and its key, from its own authority (`penstock keys`) or from another
one. A rank knows the authority (`ca`) and checks the server's name. With `client_ca` the server
accepts only clients whose certificate that authority has signed.
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

# The most data of one TLS record. One call does not encrypt more anyway.
RECORD: Final = 16 << 10
# Bytes encrypted or received at once: OpenSSL keeps as much memory for each connection.
AT_ONCE: Final = 64 << 10
MOST_AT_ONCE: Final = 256 << 10
# Received bytes that may carry no data, including a handshake: several times the largest record.
MOST_IDLE: Final = 128 << 10
# How long before a certificate expires the operator is warned.
WARN_BEFORE: Final = timedelta(days=30)
# The first byte of a client that uses TLS.
HANDSHAKE: Final = 0x16
# The answer to a TLS client where TLS is not used: a fatal alert, "protocol version".
NO_TLS_HERE: Final = bytes((0x15, 3, 3, 0, 2, 2, 70))
# Parts of OpenSSL's names for alerts about a certificate.
_ABOUT_CERTIFICATES: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR")


# --- sockets ---------------------------------------------------------------------------------


class TlsSocket:
    """An encrypted connection over a plain socket, as `wire.tcp_stream` uses a socket.

    OpenSSL works on memory here and not on the socket. Otherwise one call could go on reading, and
    block its thread, for as long as a peer sends records that carry no data.

    One thread may read while another one writes. OpenSSL does not allow that, so each call to it
    holds a lock, for the time of one record. The lock is reentrant, because a finalizer that runs
    in the reader's thread may have something to send.
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
        self._unsent = memoryview(b"")  # encrypted, and not yet given to the kernel
        self._accepted = 0  # plain bytes of it, which were not yet reported to the caller
        self._idle = 0  # bytes received since the last record with data

    def fileno(self) -> int:
        """Return the socket's descriptor; -1 once closed."""
        return self._socket.fileno()

    # --- the handshake -----------------------------------------------------------------------

    def handshake(self) -> int | None:
        """Continue the handshake. Return None once it is done, else the event to poll for.

        Raises:
            OSError: It failed; `explained` says what that means.
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
                    self._flush()  # sends the alert with the reason
                raise
            finally:
                self._collect()

    def peer_name(self) -> str | None:
        """Return the name in the other end's checked certificate; None if there is none."""
        found: dict[str, Any] = self._tls.getpeercert() or {}
        named = dict(pair for pairs in found.get("subject", ()) for pair in pairs)
        return named.get("commonName")

    # --- sending -----------------------------------------------------------------------------

    def send(self, data: bytes) -> int:
        """Send the beginning of data, as `sendmsg` does."""
        return self.sendmsg([data])

    def sendmsg(self, buffers: list[Any]) -> int:
        """Send the beginning of the buffers, and return the number of bytes.

        Small buffers are joined into one record.

        Raises:
            BlockingIOError: The socket has no room. The next call sends what is already encrypted,
                and must be given the same bytes again.
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
            with self._lock:  # for one record, so that the reader can take it in between
                self._accepted += self._tls.write(view[self._accepted :])
        with self._lock:
            self._collect()

    def _collect(self) -> None:
        if self._outgoing.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())

    def _flush(self) -> bool:
        """Send what is encrypted; return False if the socket has no room for all of it."""
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent = self._unsent[sent:]
        return True

    # --- receiving ---------------------------------------------------------------------------

    def recv_into(self, buffer: Any) -> int:
        """Receive the data of one record, and return the number of bytes; 0 at the end.

        Raises:
            BlockingIOError: No complete record has arrived.
        """
        nbytes = self._decrypt(buffer) if self.has_buffered else None
        if nbytes is None:
            self._receive()
            nbytes = self._decrypt(buffer)
        if nbytes is None:
            raise BlockingIOError
        return nbytes

    @property
    def has_buffered(self) -> bool:
        """Whether data was received and not returned yet, perhaps only a part of a record."""
        if self._incoming.pending:
            return True
        with self._lock:
            return self._tls.pending() > 0

    def recvmsg_into(self, buffers: list[Any]) -> tuple[int]:
        """Receive into the first buffer only, as many records as have arrived and fit."""
        received, view = 0, buffers[0]
        try:
            while received < len(view) and (nbytes := self.recv_into(view[received:])):
                received += nbytes
        except BlockingIOError:
            if not received:
                raise
        return (received,)

    def _decrypt(self, buffer: Any) -> int | None:
        """Decrypt data of one record; return the number of bytes, None if none is complete."""
        with self._lock:
            try:
                nbytes: Any = self._tls.read(len(buffer), buffer)  # the stub says it returns bytes
            except ssl.SSLWantReadError:
                return None
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0
        if nbytes:
            self._idle = 0
        return int(nbytes)

    def _receive(self) -> None:
        """Receive encrypted data; raise BlockingIOError if there is none.

        A peer may send records that carry no data (`KeyUpdate`), each of which costs time, or a
        handshake without end. A well-behaved peer sends little of either, so they are limited.
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

    # --- the socket itself -------------------------------------------------------------------

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option of the plain socket."""
        self._socket.setsockopt(level, option, value)

    def shutdown(self, how: int) -> None:
        """End a direction of the connection, without a `close_notify` of TLS."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._socket.close()


def _joined(buffers: list[Any]) -> bytearray:
    """Return as much of small buffers as fits in one record."""
    joined = bytearray()
    for buffer in buffers:
        joined += buffer[: RECORD - len(joined)]
        if len(joined) >= RECORD:
            break
    return joined


_memory = threading.local()


def _scratch() -> memoryview:
    """Return this thread's receive buffer; one for each connection would cost too much memory."""
    found: memoryview | None = getattr(_memory, "scratch", None)
    if found is None:
        found = _memory.scratch = memoryview(bytearray(MOST_AT_ONCE))
    return found


def explained(error: OSError, address: str) -> Exception:
    """Return what a failed handshake means, as an error to raise.

    It is `AccessDenied` if a retry would fail, too: one end does not trust a certificate.
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
    """Return whether a connection ended because one end does not trust the other's certificate.

    With TLS 1.3 a client may learn that only when it reads for the first time.
    """
    return any(word in reason.upper().replace(" ", "_") for word in _ABOUT_CERTIFICATES)


# --- a server's certificate ------------------------------------------------------------------


class Clock(Protocol):
    """Returns the time; tests use their own."""

    def __call__(self) -> datetime: ...


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


@dataclass(eq=False)
class ServerCertificates:
    """The files of a server's certificate, and what was last read from them.

    `reload` reads them again. New connections then use what it has read; existing ones do not
    change.
    """

    certificate: Path
    key: Path | None = None  # None: the key is in the certificate's file
    client_ca: Path | None = None
    context: ssl.SSLContext = field(init=False)
    expires: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.reload()

    def reload(self) -> None:
        """Read the files; if they are not valid, raise ValueError and change nothing."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # ranks connect once, and tickets cost memory
        load_chain(context, self.certificate, self.key)
        if self.client_ca is not None:
            load_authority(context, self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        self.context, self.expires = context, expiry_of(self.certificate)

    def warning(self, at: datetime) -> str | None:
        """Return a warning that the certificate expires soon; None while there is time."""
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
    """Return the TLS context of a rank.

    Args:
        ca: The authority that it trusts; None: those of the system.
        certificate: Its own certificate, if the server wants one.
        key: The certificate's key; None: it is in the same file.
    """
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
    """Load a context's own certificate; raise ValueError or OSError that names the file."""
    for path in (certificate, key):
        if path is not None:
            path.open("rb").close()  # raises an OSError that names the file
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
    """Make a context trust an authority; raise ValueError or OSError that names the file."""
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
    """Return when the first certificate in a PEM file expires; ValueError if there is none."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    text = path.read_text(errors="replace")
    first = text.partition(begin)[2].partition(end)[0]
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(f"{begin}{first}{end}"))
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path} has no certificate in PEM: {error}") from None


def _not_after(der: bytes) -> datetime:
    """Return the end of validity of an X.509 certificate; the other fields are skipped."""
    _, certificate, _ = _element(der)
    _, signed, _ = _element(certificate)
    kind, _, rest = _element(signed)
    if kind == _EXPLICIT_0:  # the version field, which is absent in version 1
        kind, _, rest = _element(rest)
    for _ in ("algorithm", "issuer"):
        _, _, rest = _element(rest)
    _, validity, _ = _element(rest)
    _, _, rest = _element(validity)
    kind, until, _ = _element(rest)
    # Years of two digits mean 1950 to 2049; for `strptime` they mean 1969 to 2068, which is the
    # same for a certificate that has not expired.
    form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(until.decode("ascii"), form).replace(tzinfo=UTC)


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Return the first element of DER data: its tag, its content, and what follows it."""
    tag, size, at = data[0], data[1], 2
    if size & 0x80:
        at += size & 0x7F
        size = int.from_bytes(data[2:at])
    if at + size > len(data):
        raise ValueError("it is cut short")
    return tag, data[at : at + size], data[at + size :]
