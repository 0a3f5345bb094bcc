"""Several hosts as one thing: made together, with one ssh config file, and gone together."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, overload

from tests.hosts import leftovers, packages, sshd
from tests.hosts.host import Host, Options, Unsupported
from tests.hosts.loopback import LoopbackHost
from tests.hosts.namespaces import NamespaceHost
from tests.hosts.network import Network, NetworkError

Kind = Literal["namespaces", "loopback"]


class Hosts(Sequence[Host]):
    """`with Hosts(3) as hosts: hosts[0].ssh("hostname")`. Named gpu1, gpu2, ... unless `names` says otherwise."""

    def __init__(self, count: int = 3, *, kind: Kind | None = None, names: Sequence[str] = (), **options: Any) -> None:
        """Returns when every sshd answers; `options` are those of `Options`. Raises Unsupported with the reason."""
        if sentence := packages.missing():
            raise Unsupported(sentence)
        leftovers.remove()
        self.directory = leftovers.new_directory()
        self.config_file = self.directory / "config"
        self._hosts: list[Host] = []
        self._network: Network | None = None
        self._owner = os.getpid()
        self._is_open = True
        atexit.register(self.close)
        try:
            self._make(list(names) or [f"gpu{number}" for number in range(1, count + 1)], kind, Options(**options))
        except BaseException:
            self.close()
            raise

    @property
    def can_cut(self) -> bool:
        """Whether links can be cut, restored and delayed."""
        return all(host.can_cut for host in self._hosts)

    @property
    def can_reboot(self) -> bool:
        return all(host.can_reboot for host in self._hosts)

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    def __getitem__(self, which: int | str) -> Host: ...
    @overload
    def __getitem__(self, which: slice) -> list[Host]: ...
    def __getitem__(self, which: int | str | slice) -> Host | list[Host]:
        """By position or by name."""
        if isinstance(which, str):
            return next(host for host in self._hosts if host.name == which)
        return self._hosts[which]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def renew(self) -> None:
        """Every host as if just made."""
        self._each(lambda host: host.renew())

    def close(self) -> None:
        """Leave nothing: no process, namespace, device, mount or file. Closed already: nothing."""
        if not self._is_open or os.getpid() != self._owner:  # a forked child runs our atexit too
            return
        self._is_open = False
        with contextlib.ExitStack() as stack:  # each is called, whatever the others raise
            stack.callback(atexit.unregister, self.close)
            stack.callback(leftovers.remove_directory, self.directory)
            if self._network is not None:
                stack.callback(self._network.close)
            for host in self._hosts:  # one by one: at exit there are no threads any more
                stack.callback(host.close)

    def _make(self, names: Sequence[str], kind: Kind | None, options: Options) -> None:
        sshd.make_key(self.directory / "key", "yard-tests")
        if kind is None:
            kind = "namespaces" if os.getuid() == 0 else "loopback"
        if kind == "namespaces":
            try:
                self._network = Network()
            except NetworkError as error:
                raise Unsupported(f"network namespaces cannot be made here: {error}") from error
        for name in names:
            self._hosts.append(self._host(name, options))
        self._each(lambda host: host.start())
        (self.directory / "known_hosts").write_text("".join(host.known_hosts_line() for host in self._hosts))
        self.config_file.write_text("\n".join(host.config() for host in self._hosts))

    def _host(self, name: str, options: Options) -> Host:
        if self._network is not None:
            return NamespaceHost(name, self.directory, options, self._network)
        return LoopbackHost(name, self.directory, options)

    def _each(self, act: Callable[[Host], None]) -> None:
        """All at once; every one is tried, then the first error is raised."""
        with ThreadPoolExecutor(max(1, len(self._hosts))) as pool:
            for done in [pool.submit(act, host) for host in self._hosts]:
                done.result()
