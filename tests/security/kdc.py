"""A key distribution centre of MIT's Kerberos (Debian: krb5-kdc, krb5-admin-server, krb5-user) on this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["REALM", "Kdc", "missing", "running_kdc"]

REALM = "AIOPRODUCER.TEST"
_PROGRAMS = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit")
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def missing() -> str | None:
    """The parts of Kerberos that are not installed."""
    absent = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    try:
        import gssapi  # noqa: F401
    except ImportError:
        absent.append("the Python library gssapi")
    return ", ".join(absent) or None


class Kdc:
    """Makes principals; ``environment`` is what programs, and this one, need to find it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.config = directory / "krb5.conf"
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n"
            f" dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self._port}\n }}\n"
        )
        profile = directory / "kdc.conf"
        profile.write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self._port}\n kdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n  key_stash_file = {directory}/stash\n"
            f"  acl_file = {directory}/kadm5.acl\n }}\n"
        )
        self.environment = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(profile),
            "KRB5CCNAME": f"FILE:{directory}/tickets",
        }
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    def keytab(self, principal: str) -> Path:
        """A new principal's key."""
        path = self._directory / (principal.replace("/", "_") + ".keytab")
        self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return path

    def log_in(self, principal: str, keytab: Path, life: str = "1h") -> None:
        """Put a ticket into the cache."""
        self._run("kinit", "-l", life, "-k", "-t", str(keytab), principal)

    def log_out(self) -> None:
        """Empty the cache."""
        (self._directory / "tickets").unlink(missing_ok=True)

    def _run(self, *command: str) -> None:
        program = shutil.which(command[0], path=_PATH)
        assert program is not None
        subprocess.run(
            [program, *command[1:]], env={**os.environ, **self.environment}, check=True, capture_output=True, timeout=60
        )

    @contextmanager
    def serving(self) -> Iterator[None]:
        """While the block runs."""
        program = shutil.which("krb5kdc", path=_PATH)
        assert program is not None
        process = subprocess.Popen(
            [program, "-n"],
            env={**os.environ, **self.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(200):
                with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                    break
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(10)


@contextmanager
def running_kdc(directory: Path) -> Iterator[Kdc]:
    """A centre that serves while the block runs."""
    kdc = Kdc(directory)
    with kdc.serving():
        yield kdc
