"""Who is who in a test cluster: one authority, and certificates that live as long as a test run."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DAYS = "365"  # the rotators of operators renew what ends within 90
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
RSA = ("-newkey", "rsa:2048", "-nodes")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs what it is asked to sign, into one directory."""

    def __init__(self, directory: Path, name: str = "jobyard-test", *, rsa: bool = False) -> None:
        """With `rsa`, its key is of the older kind and form, which some operators insist on."""
        directory.mkdir(mode=0o700)
        self.directory = directory
        self.pair = self._pair("authority")
        self.certificate = self.pair.certificate
        kind, about = RSA if rsa else KEY, ("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}")
        outputs = ("-keyout", self.pair.key, "-out", self.pair.certificate)
        _openssl("req", "-x509", *kind, "-days", DAYS, *about, *outputs)
        if rsa:
            _openssl("rsa", "-traditional", "-in", self.pair.key, "-out", self.pair.key)

    def issue(self, name: str, user: str, *, groups: Sequence[str] = (), addresses: Sequence[str] = ()) -> Pair:
        """A pair for `user`, good as a client, and as a server at these addresses (IP or DNS)."""
        pair = self._pair(name)
        request, extensions = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        names = [f"{'IP' if _is_ip(each) else 'DNS'}:{each}" for each in addresses]
        lines = ["extendedKeyUsage=clientAuth,serverAuth"]
        lines += [f"subjectAltName={','.join(names)}"] if names else []
        extensions.write_text("\n".join(lines) + "\n")
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        _openssl("req", *KEY, "-subj", subject, "-keyout", pair.key, "-out", request)
        signer = ("-CA", self.pair.certificate, "-CAkey", self.pair.key, "-CAcreateserial")
        _openssl(
            "x509", "-req", "-in", request, *signer, "-days", DAYS, "-extfile", extensions, "-out", pair.certificate
        )
        return pair

    def _pair(self, name: str) -> Pair:
        return Pair(self.directory / f"{name}.crt", self.directory / f"{name}.key")


def _is_ip(address: str) -> bool:
    return address.replace(".", "").isdigit()


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)
