"""Key pairs for encrypted messages, in files."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from pulsarish.runtime.crypto_key_reader import CryptoKeyReader

__all__ = ["Pair", "curve_pair", "rsa_pair"]


class Pair:
    """A pair of keys in PEM: the public one as most tools write it, the private one in the form
    that Apache Pulsar's clients in C++ and Java read.
    """

    def __init__(self, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
        self.private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        self.public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def files(self, directory: Path, name: str) -> tuple[str, str]:
        """Write both. Returns the paths of the public and the private key."""
        public, private = directory / f"{name}-public.pem", directory / f"{name}-private.pem"
        public.write_bytes(self.public)
        private.write_bytes(self.private)
        return str(public), str(private)

    def reader(self, directory: Path, name: str) -> CryptoKeyReader:
        return CryptoKeyReader(*self.files(directory, name))


def rsa_pair() -> Pair:
    return Pair(rsa.generate_private_key(65537, 2048))


def curve_pair(curve: ec.EllipticCurve | None = None) -> Pair:
    return Pair(ec.generate_private_key(curve or ec.SECP521R1()))
