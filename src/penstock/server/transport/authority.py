"""A private certificate authority in a folder, for users who have no other.

    keys/
      ca.pem            goes to every rank, which verifies the server with it
      ca.key            signs further certificates (mode 600): keep it, off the servers if you can
      server.pem        the server's certificate
      server.key        its private key (mode 600)
      clients/rank-0.pem, clients/rank-0.key   for a rank that is identified by name

Keys are ECDSA over P-256, made by the package `cryptography` (extra `tls`). Only this module needs
that package: servers and ranks use Python's own TLS, with certificates from any source.
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.server.transport.access import write_private
from penstock.wire.transport.tls import now

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY: Final = "ca"
SERVER: Final = "server"
CLIENTS: Final = "clients"
CERTIFICATE: Final = ".pem"
KEY: Final = ".key"
# Days for which a certificate is valid; the authority's own is valid for ten years.
DAYS: Final = 730
AUTHORITY_DAYS: Final = 3650
# Names by which ranks on the server's own host can always reach it.
_ALWAYS: Final = ("localhost", "127.0.0.1", "::1")
_NAME: Final = re.compile(r"[\w.-]{1,64}")
# The clocks of two hosts may differ.
_LENIENCE: Final = timedelta(minutes=10)


class Authority:
    """The authority in a folder; it is made if there is none yet."""

    def __init__(self, folder: Path) -> None:
        _check_installed()
        self.folder = folder
        self.made: list[Path] = []
        if not (folder / f"{AUTHORITY}{CERTIFICATE}").exists():
            self._make()

    @property
    def certificate(self) -> Path:
        """Return the path of the authority's certificate, which ranks and servers trust."""
        return self.folder / f"{AUTHORITY}{CERTIFICATE}"

    @property
    def has_server(self) -> bool:
        """Return whether the folder has a certificate for the server."""
        return (self.folder / f"{SERVER}{CERTIFICATE}").exists()

    def issue_server(self, hosts: Sequence[str] = (), days: int = DAYS) -> None:
        """Issue a certificate for a server with these host names and addresses.

        An existing certificate is replaced, each file atomically, so that a reader never finds half
        a file.
        """
        names = dict.fromkeys((*hosts, socket.gethostname(), *_ALWAYS))
        self._issue(self.folder, SERVER, tuple(names), days, server=True)

    def issue_client(self, name: str, days: int = DAYS) -> None:
        """Issue a certificate for a rank of this name; `FileExistsError` if there is one."""
        _check_name(name)
        folder = self.folder / CLIENTS
        if (folder / f"{name}{CERTIFICATE}").exists():
            raise FileExistsError(f"{folder / name}{CERTIFICATE} exists already, and is kept")
        self._issue(folder, name, (), days, server=False)

    # --- private -----------------------------------------------------------------------------

    def _make(self) -> None:
        from cryptography import x509

        key = _new_key()
        # The name must be unique: clients could take one of two authorities of one name for the
        # other.
        subject = _subject(f"Penstock authority {secrets.token_hex(4)} of {socket.gethostname()}")
        usage = _usage(key_cert_sign=True, crl_sign=True)
        signed = (
            _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write(self.folder, AUTHORITY, key, _signed(signed, key))

    def _issue(
        self, folder: Path, name: str, hosts: tuple[str, ...], days: int, *, server: bool
    ) -> None:
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        authority, authority_key = self._read()
        # A server is a client of the other servers of its store.
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if server else []
        purposes.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        key = _new_key()
        signed = (
            _builder(_subject(name), authority.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(_issued_by(authority_key), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            signed = signed.add_extension(names, critical=False)
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder, name, key, _signed(signed, authority_key))

    def _read(self) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        path = self.folder / f"{AUTHORITY}{KEY}"
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
            key: Any = load_pem_private_key(path.read_bytes(), None)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path} is not here: only whoever has the authority's key can make certificates"
            ) from None
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{self.certificate} and {path} are not an authority: {error}"
            ) from None
        return certificate, key

    def _write(
        self, folder: Path, name: str, key: EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> None:
        from cryptography.hazmat.primitives import serialization

        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        public = certificate.public_bytes(serialization.Encoding.PEM)
        for suffix, data in ((KEY, private), (CERTIFICATE, public)):
            path, new = folder / f"{name}{suffix}", folder / f".{name}{suffix}.new"
            new.unlink(missing_ok=True)
            write_private(new, data)
            if suffix == CERTIFICATE:
                new.chmod(0o644)
            os.replace(new, path)
            self.made.append(path)


def _check_installed() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise PenstockError(
            "making certificates needs the package cryptography: pip install 'penstock-gnn[tls]'; "
            "or use certificates from elsewhere"
        ) from None


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise ValueError(f"name is {name!r}; expected letters, digits, '-', '_' and '.'")


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(subject: Any, issuer: Any, public_key: Any, days: int) -> x509.CertificateBuilder:
    from cryptography import x509

    begin: datetime = now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _LENIENCE)
        .not_valid_after(begin + timedelta(days=days))
    )


def _issued_by(authority: EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    from cryptography import x509

    return x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _usage(**used: bool) -> x509.KeyUsage:
    from cryptography import x509

    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**(dict.fromkeys(names, False) | used))


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ValueError(f"host is {host!r}; expected a name or an address") from None
