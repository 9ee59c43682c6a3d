"""Append-only sequences of small records, one folder each: entry *n* is the file `<n>`, created only if absent.

Nothing in it is ever changed or removed, so whoever finds the next number taken knows that another was faster.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from marin_cas.cache.entry import Entry
from marin_cas.disk import Disk, disk_problem
from marin_cas.store.temporary import Temporary


class Sequences:
    """The sequences whose folders `folder(name)` names. Raises EnvironmentProblem where the disk is in the way."""

    def __init__(self, folder: Callable[[str], str], temporary: Temporary, disk: Disk) -> None:
        self.folder = folder
        self._temporary = temporary
        self._disk = disk

    def numbers(self, name: str) -> list[int]:
        """The numbers of its entries, in order; none for a sequence that is not there."""
        folder = self.folder(name)
        try:
            return sorted(int(number) for number in os.listdir(folder) if number.isdecimal())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise disk_problem(error, folder) from error

    def entry(self, name: str, n: int) -> Entry:
        path = f"{self.folder(name)}/{n}"
        try:
            with open(path, "rb") as file:
                return Entry.parse(n, file.read())
        except OSError as error:
            raise disk_problem(error, path) from error

    def entries(self, name: str) -> list[Entry]:
        """All entries, in order."""
        return [self.entry(name, n) for n in self.numbers(name)]

    def append(self, name: str, entry: Entry) -> bool:
        """Creates the entry; False when its number is taken."""
        folder = self.folder(name)
        temporary = self._temporary.name()
        try:
            try:
                self._disk.write(temporary, entry.record())
            except FileNotFoundError:
                self._temporary.prepare()
                self._disk.write(temporary, entry.record())
            try:
                # A link and not a rename: a rename would overwrite the entry of whoever was faster.
                try:
                    self._disk.link(temporary, f"{folder}/{entry.n}")
                except FileNotFoundError:
                    self._disk.makedirs(folder)
                    self._disk.link(temporary, f"{folder}/{entry.n}")
            except FileExistsError:
                return False
            finally:
                with suppress(OSError):
                    self._disk.unlink(temporary)
        except OSError as error:
            raise disk_problem(error, folder) from error
        return True
